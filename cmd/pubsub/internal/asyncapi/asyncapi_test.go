package asyncapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/heraldmq/herald/client"
)

func advertisements(t *testing.T, texts ...string) (all []client.Advertisement) {
	t.Helper()
	for _, text := range texts {
		var ad client.Advertisement
		if err := json.Unmarshal([]byte(text), &ad); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		all = append(all, ad)
	}
	return all
}

// ours are advertisements with everything that could get lost.
var ours = []string{
	`{"name":"plain","subject":"plain","role":"publishes"}`,
	`{"name":"reader","subject":"plain","role":"consumes","lease":{"mode":"ttl","ttl":"5s","grace":"1s"}}`,
	`{"name":"asks","subject":"svc.{id}","role":"responds","kind":"command","summary":"yes: no","description":"# Head\n\n- a\n- b\n"}`,
	`{"name":"logs","subject":"logs.{host}.{rest...}","role":"operator","tags":["a","true","1"],"lineage":["x.>","y"]}`,
	`{"name":"wild","subject":"a.*.b.>","role":"publishes","content_type":"application/json","x-cost":{"centre":7,"big":12345678901234567890},"odd key":[1.0,null,"~"]}`,
	`{"name":"orders","subject":"orders.{region}","owner":{"team":"a","service":"b","contact":"c@d"},"enforce":"reject","exclusive":true,
	  "schema":{"format":"json-schema","version":"2","compat":"full","inline":{"z":1,"type":"object","a":{"pattern":"^<&>$","multipleOf":0.10,"maximum":1e3,"const":"no"},"x":[true,false,null,"yes","0x1F","2026-01-01"]}},
	  "headers_schema":{"required":["Trace"],"type":"object"},"examples":[{"qty":1},"text",[1,2.50]],"key":{"pointer":"/id"},"rate":{"expected":"50/s","silence_after":"5m0s"},
	  "durable":{"topic":"orders","retention":"limits"},"lifecycle":{"stage":"stable","sunset":"2030-01-01"}}`,
	`{"name":"orders","subject":"orders.other","owner":{"team":"z/y"},"schema":{"format":"json-schema","inline":true}}`,
	`{"name":"escaped","subject":"e","schema":{"format":"json-schema","inline":{"title":"caf\u00e9"}}}`,
	`{"name":"astext","subject":"e2","schema":{"format":"json-schema","inline":"{ \"type\" : \"object\" }"}}`,
	`{"name":"avro","subject":"av","schema":{"format":"avro","inline":{"type":"record","name":"R","fields":[{"name":"f","type":"long"}]}}}`,
	`{"name":"proto","subject":"pb","schema":{"format":"protobuf","message":"m.A","inline":"syntax = \"proto3\";\nmessage A { int32 x = 1; }\n"}}`,
	`{"name":"byref","subject":"r","schema":{"format":"avro","ref":"https://example.org/a.avsc","sha256":"00"}}`,
}

// plain is an advertisement without what the broker fills in by itself.
func plain(t *testing.T, ad *client.Advertisement) map[string]any {
	t.Helper()
	if ad.Role == "" {
		ad.Role = "publishes"
	}
	if ad.Schema != nil && len(ad.Schema.Inline) > 0 {
		s := *ad.Schema
		s.SHA256 = ""
		ad.Schema = &s
	}
	b, err := json.Marshal(ad)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestOurOwnComeBackWhole(t *testing.T) {
	ads := advertisements(t, ours...)
	for i := range ads {
		plain(t, &ads[i])
	}
	doc, err := Export("here", ads)
	if err != nil {
		t.Fatal(err)
	}
	if !Is(doc) {
		t.Error("is not known for what it is")
	}
	back, err := Import(doc)
	if err != nil {
		t.Fatalf("%v in\n%s", err, doc)
	}
	again, err := Export("here", back)
	if err != nil || string(again) != string(doc) {
		t.Errorf("exported again it differs (%v):\n%s\n---\n%s", err, doc, again)
	}
	if len(back) != len(ads) {
		t.Fatalf("%d came back of %d", len(back), len(ads))
	}
	byName := map[string]*client.Advertisement{}
	for i := range back {
		byName[back[i].Name+back[i].Owner.Key()] = &back[i]
	}
	for i := range ads {
		got := byName[ads[i].Name+ads[i].Owner.Key()]
		if got == nil {
			t.Errorf("%s is gone", ads[i].Name)
			continue
		}
		if a, b := plain(t, &ads[i]), plain(t, got); !reflect.DeepEqual(a, b) {
			t.Errorf("%s came back as\n%v\nnot\n%v", ads[i].Name, b, a)
		}
		if s := ads[i].Schema; s != nil && !sameText(s.Inline, got.Schema.Inline) && len(s.Inline) > 0 {
			t.Errorf("the schema of %s came back as %s, not %s", ads[i].Name, got.Schema.Inline, s.Inline)
		}
	}
	// The order they are given in makes no difference.
	for i, j := 0, len(ads)-1; i < j; i, j = i+1, j-1 {
		ads[i], ads[j] = ads[j], ads[i]
	}
	if other, err := Export("here", ads); err != nil || string(other) != string(doc) {
		t.Error("another order gives another document")
	}
}

const foreign = `
asyncapi: 3.0.0
info: {title: Lights, version: 1.0.0}
defaultContentType: application/json
channels:
  lightMeasured:
    address: smartylighting/streetlights/{id}/measured
    messages:
      measured: {$ref: '#/components/messages/measured'}
    parameters: {id: {description: the light}}
  unused: {address: other}
operations:
  receiveMeasurement:
    action: receive
    summary: Inform about lighting
    channel: {$ref: '#/channels/lightMeasured'}
    messages: [{$ref: '#/channels/lightMeasured/messages/measured'}]
  turn/On:
    action: receive
    channel: {$ref: '#/channels/lightMeasured'}
    reply: {}
components:
  messages:
    measured:
      contentType: application/json
      payload: {type: object, properties: {at: {$ref: '#/components/schemas/at'}}}
      examples: [{name: one, payload: {at: now}}]
  schemas: {at: {type: string}}
`

func TestDocumentsOfOthers(t *testing.T) {
	ads, err := Import([]byte(foreign))
	if err != nil {
		t.Fatal(err)
	}
	if len(ads) != 3 {
		t.Fatalf("got %d", len(ads))
	}
	a := ads[0]
	if a.Name != "receiveMeasurement" || a.Role != "consumes" || a.Subject != "smartylighting.streetlights.{id}.measured" || a.Summary != "Inform about lighting" {
		t.Errorf("%+v", a)
	}
	if string(a.Schema.Inline) != `{"type":"object","properties":{"at":{"type":"string"}}}` || len(a.Examples) != 1 || a.ContentType != "application/json" {
		t.Errorf("schema %s, examples %s", a.Schema.Inline, a.Examples)
	}
	if ads[1].Name != "turn.On" || ads[1].Role != "responds" || ads[2].Name != "unused" || ads[2].Role != "publishes" {
		t.Errorf("%+v\n%+v", ads[1], ads[2])
	}
}

func TestWhatCantBeReadIsSaid(t *testing.T) {
	for doc, want := range map[string]string{
		"asyncapi: 2.6.0": "only 3.x",
		"asyncapi: 3.1.0": "no channels",
		"asyncapi: 3.1.0\noperations: {a: {action: send, channel: {$ref: 'other.yaml#/x'}}}":                                        "not in the document",
		"asyncapi: 3.1.0\nchannels: {a: {address: a, x-herald-subject: b}}":                                                         "change both",
		"asyncapi: 3.1.0\nchannels: &c {a: *c}":                                                                                     "",
		"asyncapi: 3.1.0\nchannels: {a: {address: a, messages: {m: {payload: {schemaFormat: application/raml+yaml, schema: {}}}}}}": "raml",
		"asyncapi: 3.1.0\nchannels: {a: {$ref: '#/channels/a'}}":                                                                    "",
		"asyncapi: [": "yaml",
	} {
		if ads, err := Import([]byte(doc)); err == nil && want != "" || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, wanted %q", doc, ads, err, want)
		}
	}
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(foreign))
	if doc, err := Export("t", advertisements(&testing.T{}, ours...)); err == nil {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		ads, err := Import(doc)
		if err != nil {
			return
		}
		if _, err := Export("t", ads); err != nil && !strings.Contains(err.Error(), "json") {
			t.Logf("not exported: %v", err)
		}
	})
}
