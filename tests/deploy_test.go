package tests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/heraldmq/herald/broker/config"
)

const chartDir = "../docs/deploy/helm/herald"

// chart is docs/deploy's Helm chart, rendered by as much of Helm as it uses.
type chart struct {
	values map[string]any
	meta   map[string]any
}

func readYAML(t *testing.T, file string) map[string]any {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := yaml.Unmarshal(b, &m); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return m
}

// set changes a value by its path.
func (c *chart) set(path string, v any) {
	m := c.values
	words := strings.Split(path, ".")
	for _, w := range words[:len(words)-1] {
		m = m[w].(map[string]any)
	}
	m[words[len(words)-1]] = v
}

// render returns the objects that the chart makes, by kind/name.
func (c *chart) render(t *testing.T) (map[string]map[string]any, error) {
	t.Helper()
	all := template.New("")
	number := func(v any) int {
		n := 0
		_, _ = fmt.Sscan(fmt.Sprint(v), &n) // 0 is no number of the chart's
		return n
	}
	indent := func(n int, s string) string {
		return "\n" + strings.Repeat(" ", n) + strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
	}
	all.Funcs(template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var b strings.Builder
			err := all.ExecuteTemplate(&b, filepath.Base(name), data)
			return b.String(), err
		},
		"toYaml": func(v any) (string, error) {
			b, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(b), "\n"), err
		},
		"nindent": indent, "int": number,
		"quote":      func(v any) string { return fmt.Sprintf("%q", fmt.Sprint(v)) },
		"contains":   func(part, s string) bool { return strings.Contains(s, part) },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(end, s string) string { return strings.TrimSuffix(s, end) },
		"sha256sum":  func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) },
		"min":        func(a, b int) int { return min(a, b) },
		"add":        func(a, b int) int { return a + b },
		"fail":       func(text string) (string, error) { return "", errors.New(text) },
		"default": func(d, v any) any {
			if v == nil || v == "" {
				return d
			}
			return v
		},
		"until": func(n int) (out []int) {
			for i := range n {
				out = append(out, i)
			}
			return out
		},
	})
	if _, err := all.ParseGlob(chartDir + "/templates/*"); err != nil {
		t.Fatal(err)
	}
	data := map[string]any{
		"Values": c.values, "Template": map[string]any{"BasePath": "herald/templates"},
		"Chart":   map[string]any{"Name": c.meta["name"], "Version": c.meta["version"], "AppVersion": c.meta["appVersion"]},
		"Release": map[string]any{"Name": "shop", "Namespace": "prod", "Service": "Helm"},
	}
	objects := map[string]map[string]any{}
	for _, f := range all.Templates() {
		if filepath.Ext(f.Name()) != ".yaml" {
			continue
		}
		var b bytes.Buffer
		if err := f.Execute(&b, data); err != nil {
			return nil, err
		}
		d := yaml.NewDecoder(&b)
		for {
			var o map[string]any
			if err := d.Decode(&o); err != nil {
				if err.Error() == "EOF" {
					break
				}
				t.Fatalf("%s: %v", f.Name(), err)
			}
			if o != nil {
				objects[fmt.Sprint(o["kind"], "/", at(o, "metadata.name"))] = o
			}
		}
	}
	return objects, nil
}

// at finds what stands at a path of a document; numbers are places in lists.
func at(v any, path string) any {
	for word := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[word]
		case []any:
			i := 0
			if _, err := fmt.Sscan(word, &i); err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func newChart(t *testing.T) *chart {
	return &chart{readYAML(t, chartDir+"/values.yaml"), readYAML(t, chartDir+"/Chart.yaml")}
}

// fits tells whether the values fit the chart's schema.
func (c *chart) fits(t *testing.T) error {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c.values)
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

func TestTheHelmChart(t *testing.T) {
	for _, replicas := range []int{1, 3, 5} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			c := newChart(t)
			c.set("replicas", replicas)
			c.set("auth.existingSecret", "auth")
			c.set("cluster.existingSecret", "nodes")
			if err := c.fits(t); err != nil {
				t.Fatal(err)
			}
			objects, err := c.render(t)
			if err != nil {
				t.Fatal(err)
			}
			set := objects["StatefulSet/shop-herald"]
			for path, want := range map[string]any{
				"spec.replicas": replicas, "spec.serviceName": "shop-herald-headless", "spec.podManagementPolicy": "Parallel",
				"spec.template.spec.terminationGracePeriodSeconds":                       90,
				"spec.template.spec.containers.0.image":                                  "herald:0.1.0",
				"spec.template.spec.containers.0.startupProbe.httpGet.path":              "/startupz",
				"spec.template.spec.containers.0.livenessProbe.httpGet.path":             "/livez",
				"spec.template.spec.containers.0.readinessProbe.httpGet.path":            "/readyz",
				"spec.template.spec.containers.0.lifecycle.preStop.exec.command.2":       "ldm=1",
				"spec.template.spec.containers.0.securityContext.readOnlyRootFilesystem": true,
				"spec.template.spec.securityContext.runAsNonRoot":                        true,
				"spec.volumeClaimTemplates.0.spec.resources.requests.storage":            "10Gi",
				"spec.template.spec.containers.0.env.1.name":                             "POD_ADDRESS",
			} {
				if got := at(set, path); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s is %v, want %v", path, got, want)
				}
			}
			if _, has := objects["PodDisruptionBudget/shop-herald"]; has != (replicas > 1) {
				t.Errorf("a budget for disruptions: %v", has)
			}
			if at(objects["Service/shop-herald-headless"], "spec.clusterIP") != "None" || at(objects["Service/shop-herald-headless"], "spec.publishNotReadyAddresses") != true {
				t.Errorf("the headless service: %v", objects["Service/shop-herald-headless"])
			}
			// The configuration that a pod gets is one.
			dir := t.TempDir()
			t.Setenv("POD_NAME", "shop-herald-0")
			t.Setenv("POD_ADDRESS", "shop-herald-0.shop-herald-headless.prod.svc:6222")
			t.Setenv("CLUSTER_USER", "n")
			t.Setenv("CLUSTER_PASSWORD", "s3cret")
			conf := filepath.Join(dir, "brokerd.conf")
			text, _ := at(objects["ConfigMap/shop-herald"], "data").(map[string]any)["brokerd.conf"].(string)
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "auth"), 0o700), os.WriteFile(conf, []byte(text), 0o600),
				os.WriteFile(filepath.Join(dir, "auth", "auth.conf"), []byte("authorization { users: [{ user: app, password: x }] }\n"), 0o600)); err != nil {
				t.Fatal(err)
			}
			o, err := config.ParseFile(conf)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if o.ServerName != "shop-herald-0" || o.JetStream.StoreDir != "/data" || o.Anonymous() || o.Cluster.Enabled() != (replicas > 1) || replicas > 1 && len(o.Cluster.Routes) != replicas {
				t.Errorf("%+v", o)
			}
		})
	}
}

// What would be unsafe, or can't be kept, is refused before anything is made.
func TestTheHelmChartRefuses(t *testing.T) {
	for what, change := range map[string]func(*chart){
		"nobody would need to log in": func(*chart) {},
		"nodes must know each other":  func(c *chart) { c.set("allowAnonymous", true) },
	} {
		c := newChart(t)
		change(c)
		if _, err := c.render(t); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
	for path, v := range map[string]any{"replicas": 2, "storage.size": "lots", "http.port": 0, "lameDuckSeconds": 0, "nonsense": 1, "cluster.name": "a b", "service.type": "Ingress"} {
		c := newChart(t)
		c.set(path, v)
		if c.fits(t) == nil {
			t.Errorf("%s: %v is taken", path, v)
		}
	}
}
