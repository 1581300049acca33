package operate

import (
	"fmt"
	"time"
)

// Stats are what a unit has done since its node was started.
type Stats struct {
	Steps      uint64        `json:"steps"`   // run here and committed
	Applied    uint64        `json:"applied"` // run by others
	Seq        uint64        `json:"seq"`
	In         uint64        `json:"in"`
	Out        uint64        `json:"out"`
	Diverged   uint64        `json:"diverged,omitzero"`
	Rebuilt    uint64        `json:"rebuilt,omitzero"`
	Busy       time.Duration `json:"busy_ns"`    // spent running, where it is led
	Blocked    time.Duration `json:"blocked_ns"` // waiting for what is under way or refused
	Idle       time.Duration `json:"idle_ns"`    // waiting for records
	InBytes    uint64        `json:"in_bytes"`
	DeltaBytes uint64        `json:"delta_bytes"` // of changes of state
	LogBytes   uint64        `json:"log_bytes"`   // of steps in the log, beside their outputs
	CommitTime time.Duration `json:"commit_ns"`   // from running to commit, of the last step

	// The last time that this node began to lead: from when no leader was known to when it
	// led, from there until it was ready to run, from there to its first output.
	Since       time.Time     `json:"leads_since,omitzero"`
	Elect       time.Duration `json:"failover_elect_ns,omitzero"`
	Apply       time.Duration `json:"failover_apply_ns,omitzero"`
	FirstOutput time.Duration `json:"failover_first_output_ns,omitzero"`

	// Taking over, by recovery passive, upstream and amnesia.
	Recovered    uint64        `json:"recovered,omitzero"`   // how often
	RecoveryTime time.Duration `json:"recovery_ns,omitzero"` // the last time
	Again        uint64        `json:"again,omitzero"`       // steps (passive), records (upstream) run again
	Lost         uint64        `json:"lost,omitzero"`        // records whose effect is lost, at most
	// Passive standbys.
	Checkpoints     uint64 `json:"checkpoints,omitzero"`
	CheckpointBytes uint64 `json:"checkpoint_bytes,omitzero"` // received
}

func (u *unit) count(f func(*Stats)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	f(&u.stats)
}

// LogLine is a line of an operator's log on one node.
type LogLine struct {
	Time  time.Time `json:"time"`
	Node  string    `json:"node,omitempty"`
	Level string    `json:"level"`
	Text  string    `json:"text"`
}

// logMax bounds an operator's log; repeated lines count once.
const logMax = 200

func (u *unit) note(level, format string, args ...any) {
	l := LogLine{Time: time.Now().UTC(), Level: level, Text: fmt.Sprintf(format, args...)}
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.log); n > 0 && u.log[n-1].Text == l.Text {
		u.log[n-1].Time = l.Time
		return
	}
	if u.log = append(u.log, l); len(u.log) > logMax {
		u.log = append([]LogLine(nil), u.log[len(u.log)-logMax:]...)
	}
}
