package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// unplaced takes out where values came from, which differs between two files, and
// puts Hidden where it is shown.
func unplaced(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			unplaced(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			unplaced(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			v.SetMapIndex(k, reflect.ValueOf(Hidden))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch name := v.Type().Field(i).Name; name {
			case "At", "ConfigFile", "Digest":
				v.Field(i).SetString("")
			case "Password", "Token":
				if v.Field(i).Len() > 0 {
					v.Field(i).SetString(Hidden)
				}
			case "Warnings", "SyncAlways", "SyncInterval": // it syncs always
				v.Field(i).SetZero()
			default:
				unplaced(v.Field(i))
			}
		}
	}
}

// pair makes a certificate and its key.
func pair(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	c, err := x509.CreateCertificate(rand.Reader, of, of, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", c), write("key.pem", "PRIVATE KEY", private)
}

// What is shown is a configuration that means the same, with no secret in it.
func TestWhatIsShownIsAConfiguration(t *testing.T) {
	cert, key := pair(t)
	for name, text := range map[string]string{
		"nothing": "",
		"tls": fmt.Sprintf(`tls { cert_file: %q, key_file: %q, ca_file: %[1]q, verify: true, min_version: "1.3", timeout: 7, handshake_first: "30ms",
			cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], curve_preferences: [CurveP256, X25519], connection_rate_limit: 8 }, allow_non_tls: true, https: 8443`, cert, key),
		"limits": `host: "0.0.0.0", port: -1, max_payload: 2MB, ping_interval: 0, write_deadline: "3s", max_connections: -1
			lame_duck_duration: "1m", lame_duck_grace_period: "4s", no_header_support: true, server_tags: [a, b], server_metadata { k: "planted" }, server_name: n1`,
		"process": `debug: true, logtime: false, log_format: json, log_file: "/x/y", logfile_size_limit: 1MB, pid_file: "/p", ports_file_dir: "/q"
			http: "0.0.0.0:8222", http_base_path: "/m", max_traced_msg_len: 10`,
		"durable": `jetstream { store_dir: "/data", domain: D, max_file_store: 10GB, strict: false, sync_interval: "2m",
			limits { max_ack_pending: 7, duplicate_window: "3m", batch { max_msgs: 9, timeout: "4s" } } }`,
		"off":   `jetstream: disabled`,
		"token": `authorization { token: "planted", timeout: 5 }`,
		"users": `authorization { users: [
			{ user: a, password: "planted", permissions { publish: "x.>", subscribe { allow: ["y queue", "z"], deny: "z.a" }, allow_responses { max: 3, expires: "5s" } } }
			{ user: b, password: "planted", allowed_connection_types: [WEBSOCKET], permissions { publish: [], discover: "d.*" } } ] }`,
		"accounts": `accounts {
			A { users: [{ user: a, password: "planted" }], jetstream { max_file: 1GB, max_streams: 3, max_bytes_required: true } }
			B { users: [{ user: b, password: "planted" }], limits { max_connections: 5, max_payload: 1KB }, default_permissions { publish: "b.>" } }
			SYS { users: [{ user: s, password: "planted" }] } }
			system_account: SYS, no_auth_user: b`,
		"cluster": `cluster { name: C, port: 6333, advertise: "h:1", routes: ["nats://u:planted@h1:6222", "nats://u:planted@h2:6222"], authorization { user: u, password: planted } }`,
		"named":   `cluster { name: C }`,
		"web": `websocket { port: 8080, no_tls: true, allowed_origins: ["https://x"], headers { X: "planted" }, same_origin: false, compression: true }
			web { heartbeat: "9s", max_connections: 12, token_cookie: c }`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "first.conf")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			first, err := ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			shown := Show(first)
			if strings.Contains(string(shown), "planted") {
				t.Errorf("a secret is shown: %s", shown)
			}
			again := filepath.Join(t.TempDir(), "again.conf")
			if err := os.WriteFile(again, shown, 0o600); err != nil {
				t.Fatal(err)
			}
			second, err := ParseFile(again)
			if err != nil {
				t.Fatalf("what is shown is no configuration: %v\n%s", err, shown)
			}
			unplaced(reflect.ValueOf(first))
			unplaced(reflect.ValueOf(second))
			for _, c := range Diff(first, second) {
				t.Errorf("%v; shown was\n%s", c, shown)
			}
		})
	}
}
