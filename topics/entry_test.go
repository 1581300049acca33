package topics

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
)

func TestPublishRecords(t *testing.T) {
	for _, p := range []Publish{
		{Topic: 7, Subject: []byte("a.b"), Header: []byte("h"), Payload: []byte("p")},
		{Topic: 1 << 40, Flags: PublishSourced, Subject: []byte("a"), Header: []byte{}, Payload: []byte{}},
		{Topic: 7, Flags: PublishSourced | PublishTimed, Subject: []byte("a.b"), Header: []byte("h"), Payload: []byte("payload"), Time: 1 << 60},
		{Topic: 7, Flags: PublishTimed, Subject: []byte("a.b"), Header: []byte{}, Payload: []byte{}, Time: -1},
	} {
		entry := AppendPublish(AppendEntryHeader(nil, 5), &p)
		if n := len(entry) - EntryHeader; n != p.Size() {
			t.Errorf("%+v: %d bytes, Size says %d", p, n, p.Size())
		}
		kind, body, next, err := NextRecord(entry, EntryHeader)
		if err != nil || kind != RecordPublish || next != len(entry) {
			t.Fatalf("record %d to %d: %v", kind, next, err)
		}
		got, err := ParsePublish(body)
		if err != nil || !reflect.DeepEqual(got, p) {
			t.Errorf("%+v came back as %+v, %v", p, got, err)
		}
	}
}

// FuzzParsePublish: a body either gives a publish that encodes to the same bytes,
// or an error.
func FuzzParsePublish(f *testing.F) {
	p := Publish{Topic: 7, Flags: PublishTimed, Subject: []byte("a.b"), Header: []byte("h"), Payload: []byte("p"), Time: 9}
	f.Add(AppendPublish(nil, &p)[RecordHeader:])
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := ParsePublish(body)
		if err != nil {
			if !errors.Is(err, ErrBadEntry) {
				t.Fatal(err)
			}
			return
		}
		if again := AppendPublish(nil, &p)[RecordHeader:]; !bytes.Equal(again, body) {
			t.Fatalf("%x became %x", body, again)
		}
	})
}
