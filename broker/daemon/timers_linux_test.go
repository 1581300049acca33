package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTimersAreCoarse: the program is executed anew, as what it was, unless somebody has
// chosen a slack.
func TestTimersAreCoarse(t *testing.T) {
	for chosen, want := range map[int]int{0: timerSlack, 70_000: 70_000} {
		cmd := exec.Command(os.Args[0], "a b", "-c")
		cmd.Env = append(os.Environ(), "HERALD_TEST_TIMERS=slack")
		if chosen > 0 { // a shell whose slack is inherited
			cmd = exec.Command("sh", "-c", fmt.Sprintf(`echo %d > /proc/self/timerslack_ns; exec "$0" "a b" -c`, chosen), os.Args[0])
			cmd.Env = append(os.Environ(), "HERALD_TEST_TIMERS=slack")
		}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pid := cmd.Process.Pid
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if got, want := strings.TrimSpace(out.String()), fmt.Sprint(want, " ", pid, " a b -c"); got != want {
			t.Errorf("chosen %d: %q, want %q", chosen, got, want)
		}
	}
}
