package cli

import (
	"strings"
	"testing"

	"github.com/heraldmq/herald/client"
)

func TestDoctorTellsOfOperatorsThatHaveFailed(t *testing.T) {
	good := client.Operator{Name: "good", State: "running"}
	bad := client.Operator{Name: "bad", State: "failed", Error: "input a: topic A was deleted"}
	for _, c := range []struct {
		all           []client.Operator
		verdict, says string
	}{
		{nil, verdictOK, "0 operators"},
		{[]client.Operator{good}, verdictOK, "1 operator, none has failed"},
		{[]client.Operator{good, bad}, verdictFail, "bad has failed: input a: topic A was deleted"},
		{[]client.Operator{bad, good, bad}, verdictFail, "2 of 3 have failed; bad"},
	} {
		if f := failedOperators("operators", c.all); f.Verdict != c.verdict || !strings.HasPrefix(f.Found, c.says) || (f.Do == "") != (c.verdict == verdictOK) {
			t.Errorf("%+v, wanted %s %s", f, c.verdict, c.says)
		}
	}
}
