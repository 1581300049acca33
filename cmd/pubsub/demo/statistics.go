package demo

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/heraldmq/herald/client"
	"github.com/heraldmq/herald/operators/optest"
	"github.com/heraldmq/herald/operators/spec"
)

// statistics is the operator that the demo runs beside everything else: the kill hits it too.
//
//go:embed statistics.yaml
var statistics []byte

// tables are the topics of its results.
var tables = []string{"quakes_hourly", "quakes_daily"}

func (d *run) deploy(ctx context.Context) error {
	var to client.OperatorChange
	if err := d.c.Operators(ctx, "DEPLOY", client.OperatorRequest{Spec: string(statistics)}, &to); err != nil {
		return err
	}
	d.Note("deployed operator %s: events per network and hour, and the strongest of each day, by when the ground shook", to.Operator.Name)
	return nil
}

// results waits for what the operator gave, and compares it with what it gives in this
// process, where nothing fails, on the records that are stored.
func (d *run) results(ctx context.Context) error {
	s, err := spec.Parse("statistics.yaml", statistics)
	if err != nil {
		return err
	}
	g, _, err := spec.Compile(s, spec.Options{})
	if err != nil {
		return err
	}
	calm, err := optest.Run(g, optest.Options{Open: true}, d.stored...)
	if err != nil {
		return err
	}
	for _, topic := range tables {
		want := calm.Of(topic)
		got, err := d.read(ctx, topic, len(want))
		if err != nil {
			return err
		}
		d.Results += len(got)
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || !bytes.Equal(want[i].Payload, got[i]) {
				d.Differing++
			}
		}
	}
	d.Note("read the operator's %d results, and compared them with a run without a failure", d.Results)
	return nil
}

// read reads a topic that is to have n messages, or what there is after some time.
func (d *run) read(ctx context.Context, topic string, n int) (all [][]byte, err error) {
	var last uint64
	for deadline := time.Now().Add(patience); ; {
		info, err := d.c.Topic(ctx, topic)
		if err != nil {
			return nil, err
		}
		if last = info.State.LastSeq; last >= uint64(n) || time.Now().After(deadline) {
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if last == 0 {
		return nil, nil
	}
	done := make(chan struct{})
	sub, err := d.c.Subscribe(topic, func(m *client.Message) error {
		all = append(all, m.Payload)
		if m.Stored.Sequence == last {
			close(done)
		}
		return nil
	}, client.From(client.First()))
	if err != nil {
		return nil, err
	}
	select {
	case <-done:
	case <-time.After(patience):
		err = fmt.Errorf("topic %s could not be read in %s", topic, patience)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return all, errors.Join(err, sub.Close())
}
