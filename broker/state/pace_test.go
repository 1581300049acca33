package state

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heraldmq/herald/topics"
)

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestAWindowReadInPiecesGoesOutAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newQueueBench(t, 1<<20)
		b.publish(names(4)...) // of a window of 5
		b.publish("e")
		time.Sleep(300 * time.Microsecond) // the disk
		b.log.end(0, nil)
		b.wantSizes(4)
		b.publish(names(3)...)
		b.wantSizes(4)
		b.publish("d")
		b.wantSizes(4, 5)
		time.Sleep(300 * time.Microsecond)
		b.log.end(1, nil)
		b.publish("a") // with nothing open, whoever comes first goes at once
		b.wantSizes(4, 5, 1)
		b.log.end(2, nil)
		b.stop()
	})
}

func TestABatchIsHeldNoLongerThanTheLastWasUnderWay(t *testing.T) {
	for _, disk := range []time.Duration{300 * time.Microsecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newQueueBench(t, 1<<20)
			b.publish("a")
			b.publish("b")
			time.Sleep(disk)
			b.log.end(0, nil)
			time.Sleep(min(disk, holdMax) - 1)
			synctest.Wait()
			b.wantSizes(1)
			time.Sleep(1 * time.Nanosecond)
			synctest.Wait()
			b.wantSizes(1, 1)
			b.publish("c")
			time.Sleep(disk)
			b.log.end(1, nil) // held back in vain once: not this time
			b.wantSizes(1, 1, 1)
			b.log.end(2, nil)
			b.stop()
		})
	}
}

func TestWhatMustNotWaitIsNotHeldBack(t *testing.T) {
	for what, f := range map[string]func(b *queueBench){
		"another record": func(b *queueBench) { b.submit(topics.RecordState, nil, nil) },
		"much":           func(b *queueBench) { b.publish(names(2)...) }, // 303 bytes
		"the end": func(b *queueBench) {
			go b.stop()
			synctest.Wait()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newQueueBench(t, 1000)
			b.publish(names(8)...)
			b.publish("b")
			time.Sleep(time.Millisecond)
			b.log.end(0, nil)
			if len(b.log.all) != 1 {
				t.Fatal("the batch was not held back")
			}
			f(b)
			if len(b.log.all) != 2 {
				t.Fatalf("%s did not make the batch go out", what)
			}
			b.log.end(1, nil)
			b.stop()
		})
	}
}

func TestPaceGivesUpOnThoseWhoDontComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		held := 0
		for range 1000 {
			p.proposed(10)
			time.Sleep(time.Millisecond)
			if p.returned(10, 5) > 0 {
				held++
				p.missed()
			}
		}
		if held > 25 {
			t.Fatalf("%d of 1000 batches were held back in vain", held)
		}
		for range 200 {
			p.proposed(10)
			time.Sleep(time.Millisecond)
			if p.returned(10, 5) > 0 {
				p.proposed(15) // now they come
				p.returned(15, 0)
			}
		}
		p.proposed(10)
		time.Sleep(time.Millisecond)
		if p.returned(10, 5) == 0 {
			t.Fatal("nothing is held back although it pays again")
		}
	})
}
