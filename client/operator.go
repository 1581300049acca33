package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// OperatorRequest says what is asked of the operators of the account. Every verb takes
// some of it.
type OperatorRequest struct {
	Name  string `json:"name,omitempty"`
	Spec  string `json:"spec,omitempty"`    // DEPLOY, UPDATE: the file
	File  string `json:"file,omitempty"`    // DEPLOY, UPDATE: its name, which errors are told with
	Reset bool   `json:"reset,omitempty"`   // UPDATE: begin with no state
	Dry   bool   `json:"dry_run,omitempty"` // DEPLOY, UPDATE: only say what would be done
	Skip  bool   `json:"skip,omitempty"`    // RESUME: pass over the record in front of which it stopped
	Key   string `json:"key,omitempty"`     // STATE: keys that contain it
	Limit int    `json:"limit,omitempty"`   // STATE: at most so many
	// Savepoint is the name of one, of the operator or OPERATOR/NAME: SAVEPOINT.CREATE, INFO
	// and REMOVE; DEPLOY, UPDATE and RESTORE begin with its state.
	Savepoint string `json:"savepoint,omitempty"`
	Shadow    bool   `json:"shadow,omitempty"` // UPDATE: run it beside the operator, without outputs; see PROMOTE, DISCARD
	// RESCALE: how many instances it gets.
	Partitions int `json:"partitions,omitempty"`
}

// Operator is an operator as it is deployed.
type Operator struct {
	ID      uint64   `json:"id"`
	Name    string   `json:"name"`
	Version string   `json:"version,omitempty"`
	Group   uint32   `json:"group"`            // of its first instance
	Groups  []uint32 `json:"groups,omitempty"` // of each, if it has several
	Epoch   uint64   `json:"epoch"`
	State   string   `json:"state"` // running, paused, failed
	Error   string   `json:"error,omitempty"`
	Digest  string   `json:"digest"`
	// Next is set while its instances are being replaced.
	Next *OperatorNext `json:"next,omitempty"`

	Created Timestamp `json:"created"`
	Changed Timestamp `json:"changed"`
}

// Partitions returns how many instances the operator has.
func (o *Operator) Partitions() int { return max(len(o.Groups), 1) }

// OperatorNext is the instances that an operator is about to have.
type OperatorNext struct {
	Groups []uint32 `json:"groups"`
	Cut    []uint64 `json:"cut,omitempty"` // by input: up to where those before read; none: not known yet
}

// Timestamp is a time in nanoseconds since 1970.
type Timestamp int64

// Time returns it as a time.
func (t Timestamp) Time() time.Time { return time.Unix(0, int64(t)).UTC() }

// OperatorReplica is what one node has of an operator.
type OperatorReplica struct {
	Node      string    `json:"node"`
	Instance  int       `json:"instance,omitempty"` // of several, from 1
	Leads     bool      `json:"leads"`
	Seq       uint64    `json:"seq"`
	Behind    uint64    `json:"behind"` // steps
	Watermark time.Time `json:"watermark,omitzero"`
	Keys      int64     `json:"state_keys"`
	Bytes     int64     `json:"state_bytes"`
	// Sizes are Keys and Bytes by step; the one without a name is the engine's own: clocks, counts,
	// and what waits to be sent.
	Sizes []struct {
		Step  string `json:"step"`
		Keys  int64  `json:"keys"`
		Bytes int64  `json:"bytes"`
	} `json:"state_steps,omitempty"`
	Lag     uint64  `json:"lag_records"`
	LagFor  float64 `json:"lag_seconds"`
	Blocked string  `json:"blocked,omitempty"`
	// Waits: it stands still for want of what may come, as records of an input; Stands is for
	// how long it has stood still in front of a step, whatever the reason.
	Waits  bool    `json:"waits,omitempty"`
	Stands float64 `json:"standstill_seconds,omitempty"`
	// Outbox is what waits to be sent to topics of other groups.
	Outbox []struct {
		Topic   string `json:"topic"`
		Parcels int    `json:"parcels"`
		Bytes   int64  `json:"bytes"`
		Blocked string `json:"blocked,omitempty"`
	} `json:"outbox,omitempty"`
	Faulty bool `json:"quarantined,omitempty"`
	Stats  struct {
		Steps    uint64        `json:"steps"`
		In       uint64        `json:"in"`
		Out      uint64        `json:"out"`
		Diverged uint64        `json:"diverged,omitzero"`
		Rebuilt  uint64        `json:"rebuilt,omitzero"`
		Busy     time.Duration `json:"busy_ns"`    // running steps, where it is led
		Blocked  time.Duration `json:"blocked_ns"` // waiting for steps under way, or for a refused output
		Idle     time.Duration `json:"idle_ns"`    // waiting for records
		// Bytes read, of changes of state, and of steps in the log beside their outputs.
		InBytes    uint64 `json:"in_bytes"`
		DeltaBytes uint64 `json:"delta_bytes"`
		LogBytes   uint64 `json:"log_bytes"`
		// The last time that the node began to lead, and how long it took.
		Since       time.Time     `json:"leads_since,omitzero"`
		Elect       time.Duration `json:"failover_elect_ns,omitzero"`
		Apply       time.Duration `json:"failover_apply_ns,omitzero"`
		FirstOutput time.Duration `json:"failover_first_output_ns,omitzero"`
		// What was run again and what was lost by recovery passive, upstream and amnesia.
		Recovered       uint64 `json:"recovered,omitzero"`
		Again           uint64 `json:"again,omitzero"`
		Lost            uint64 `json:"lost,omitzero"`
		Checkpoints     uint64 `json:"checkpoints,omitzero"`
		CheckpointBytes uint64 `json:"checkpoint_bytes,omitzero"`
	} `json:"stats"`
	Loads []struct {
		Step  string        `json:"step"`
		Calls uint64        `json:"calls"`
		Busy  time.Duration `json:"busy_ns"`
	} `json:"loads,omitempty"` // of the runs that are measured
	Standby    string  `json:"standby,omitempty"` // what a step brings standbys: delta, replay or progress
	Checkpoint float64 `json:"checkpoint_age_seconds,omitempty"`
	Kept       int     `json:"kept_steps,omitempty"` // behind the state, which it has not run
	// Shadow is how another version compares that runs beside it, where it is led.
	Shadow *OperatorShadow `json:"shadow,omitempty"`
	Counts []struct {
		Step, Name string
		N          uint64
	} `json:"counts,omitempty"`
}

// OperatorShadow is how another version compares that runs beside an operator.
type OperatorShadow struct {
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since"`
	Steps   uint64    `json:"steps"`
	Same    uint64    `json:"same"`                   // rows that both gave
	OnlyOld uint64    `json:"only_old"`               // rows that only the operator gave so far
	OnlyNew uint64    `json:"only_new"`               // rows that only the shadow gave so far
	Old     []string  `json:"old_examples,omitempty"` // topic, subject and payload
	New     []string  `json:"new_examples,omitempty"`
	Partial bool      `json:"partial,omitempty"` // there were more differences than are kept
	Error   string    `json:"error,omitempty"`   // why the shadow can't go on
}

// OperatorInfo is an operator with its replicas.
type OperatorInfo struct {
	Operator Operator          `json:"operator"`
	Leader   string            `json:"leader"`
	Replicas []OperatorReplica `json:"replicas"`
	// Outputs are those that are to be advertised.
	Outputs []OperatorOutput `json:"outputs"`
}

// OperatorOutput is how an output of an operator is advertised.
type OperatorOutput struct {
	Output     string `json:"output"`          // its topic, or live subject
	Name       string `json:"name,omitempty"`  // of the advertisement
	Owner      string `json:"owner,omitempty"` // as Owner.Key
	Subject    string `json:"subject,omitempty"`
	Implicit   bool   `json:"implicit,omitempty"` // the spec says nothing about it
	Advertised bool   `json:"advertised"`
	Why        string `json:"why,omitempty"` // it isn't
}

// OperatorSavepoint is an operator's state under a name.
type OperatorSavepoint struct {
	Name      string `json:"name"`
	Operator  string `json:"operator"`
	Version   string `json:"version,omitempty"`
	Epoch     uint64 `json:"epoch"`
	Instances []struct {
		Seq   uint64 `json:"seq"`
		Keys  int64  `json:"keys"`
		Bytes int64  `json:"bytes"`
	} `json:"instances"`
	Created time.Time `json:"created"`
	Bytes   uint64    `json:"bytes"`
	Object  string    `json:"object"` // in the object store herald-savepoints
	Digest  string    `json:"digest"`
	// Making is set, and nothing else, while it isn't there yet.
	Making string `json:"making,omitempty"`
}

// OperatorChange is what DEPLOY, UPDATE, PAUSE and RESUME give.
type OperatorChange struct {
	Operator Operator          `json:"operator"`
	Created  bool              `json:"created,omitempty"`
	Steps    map[string]string `json:"steps,omitempty"` // what becomes of their state
}

// Operators asks $HERALD.OP.<verb> and decodes the answer into to.
func (c *Client) Operators(ctx context.Context, verb string, r OperatorRequest, to any) error {
	op := map[string]string{
		"DEPLOY": "deploy operator", "UPDATE": "update operator", "LIST": "list operators", "INFO": "describe operator",
		"PAUSE": "pause operator", "RESUME": "resume operator", "REMOVE": "remove operator", "LOGS": "read the log of operator",
		"STATE": "read the state of operator", "GRAPH": "draw operator",
		"SAVEPOINT.CREATE": "make a savepoint of operator", "SAVEPOINT.LIST": "list savepoints of operator", "SAVEPOINT.INFO": "describe a savepoint of operator",
		"SAVEPOINT.REMOVE": "remove a savepoint of operator", "RESTORE": "restore operator", "RESCALE": "rescale operator", "CANCEL": "call off the rescaling of operator", "PROMOTE": "promote the shadow of operator", "DISCARD": "discard the shadow of operator",
	}[verb]
	b, err := json.Marshal(r)
	if err != nil {
		return failed(op, r.Name, err)
	}
	m, err := c.Request(ctx, "$HERALD.OP."+verb, b)
	if err != nil {
		var mine *Error
		if errors.As(err, &mine) {
			return &Error{Op: op, Target: r.Name, Kind: mine.Kind, Err: mine.Err}
		}
		return failed(op, r.Name, err)
	}
	var e struct {
		Error *struct {
			Code        int    `json:"code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Payload, &e); err != nil {
		return failed(op, r.Name, fmt.Errorf("decode the answer: %w", err))
	}
	if e.Error != nil {
		return &Error{Op: op, Target: r.Name, Kind: statusKind(e.Error.Code), Err: errors.New(e.Error.Description)}
	}
	return failed(op, r.Name, json.Unmarshal(m.Payload, to))
}
