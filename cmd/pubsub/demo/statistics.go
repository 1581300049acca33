package demo

import (
	"bytes"
	"context"
	"strings"

	"github.com/heraldmq/herald/client"
)

// statistics are the operators that the demo with one broker runs beside everything else:
// the kill hits them too.
var statistics = []string{single(operatorFiles[0]), single(operatorFiles[1])}

// single makes an operator's file one for a broker that is alone.
func single(file string) string { return strings.ReplaceAll(file, "replicas: 3", "replicas: 1") }

func (d *run) deploy(ctx context.Context) error {
	for _, file := range statistics {
		var to client.OperatorChange
		if err := d.c.Operators(ctx, "DEPLOY", client.OperatorRequest{Spec: file}, &to); err != nil {
			return err
		}
		d.Note("deployed operator %s", to.Operator.Name)
	}
	return nil
}

// results waits for what the operators gave, and compares it with what they give in this
// process, where nothing fails, on the records that are stored.
func (d *run) results(ctx context.Context) error {
	for _, file := range statistics {
		want, err := calm(file, d.stored)
		if err != nil || len(want) == 0 {
			return err
		}
		got, err := readTopic(ctx, d.c, want[0].Sink, len(want))
		if err != nil {
			return err
		}
		d.Results += len(got)
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || !bytes.Equal(want[i].Payload, got[i].Payload) {
				d.Differing++
			}
		}
	}
	d.Note("read the operators' %d results, and compared them with a run without a failure", d.Results)
	return nil
}
