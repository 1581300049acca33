package operate

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("herald_operator_"+name, help, append([]string{"account", "operator", "instance"}, labels...), nil)
}

var (
	descState    = desc("state", "1 for the state an operator is in.", "state")
	descLeads    = desc("leads", "Whether this node runs the operator.")
	descSeq      = desc("step", "The last step taken in on this node.")
	descBehind   = desc("standby_lag_steps", "Steps that are committed and not taken in on this node.")
	descLag      = desc("lag_records", "Records of the inputs that wait.")
	descLagFor   = desc("lag_seconds", "Age of the oldest of them.")
	descMark     = desc("watermark_seconds", "How far event time has come, in seconds since 1970.")
	descKeys     = desc("state_keys", "Keys of the state.")
	descBytes    = desc("state_bytes", "Bytes of keys and values of the state.")
	descStepKeys = desc("step_state_keys", "Keys of a step's state; of no step: the engine's own.", "step")
	descStepSize = desc("step_state_bytes", "Bytes of keys and values of a step's state; of no step: the engine's own.", "step")
	descOutbox   = desc("outbox_bytes", "Bytes of outputs that wait for a topic of another group.", "topic")
	descIn       = desc("records_in_total", "Records that steps of this node have read.")
	descOut      = desc("records_out_total", "Records that steps of this node have given.")
	descSteps    = desc("steps_total", "Steps run on this node and committed.")
	descBusy     = desc("busy_seconds_total", "Time spent running steps on this node.")
	descDiverged = desc("divergence_total", "How often this node's state was found to differ from the primary's.")
	descRebuilt  = desc("rebuilt_total", "How often this node took over the state of another.")
	descBlocked  = desc("blocked_seconds_total", "Time spent waiting for steps under way, or for outputs that are refused.")
	descIdle     = desc("idle_seconds_total", "Time spent waiting for records.")
	descVolume   = desc("bytes_total", "Bytes read (input), of changes of state (delta), of steps in the log beside their outputs (log).", "what")
	descNodeBusy = desc("step_busy_seconds_total", "Time spent in a step of the graph, of the runs that are measured.", "step")
	descCalls    = desc("step_calls_total", "Calls of a step of the graph, of the runs that are measured: by step_busy_seconds_total, its true rate.", "step")
	descCheck    = desc("checkpoint_age_seconds", "Age of a passive standby's state.")
	descKept     = desc("kept_steps", "Steps that a replica keeps behind its state, which it has not run: a passive standby, or one that can't.")
	descStands   = desc("standstill_seconds", "For how long this node has stood still in front of a step that it can't run again; 0: it doesn't.")
	descSent     = desc("checkpoint_bytes_total", "Bytes of checkpoints that this node has received.")
	descRecov    = desc("recovered_total", "How often this node took over with recovery passive, upstream or amnesia.")
	descAgain    = desc("again_total", "Steps (passive) or records (upstream) that were run again in doing so.")
	descLost     = desc("lost_records_total", "Records whose effect was lost in doing so, at most.")
	descFailover = desc("failover_phase_seconds", "The last time that this node took over: elect, from when no leader was known; apply, until it was ready to run; first_output, from there.", "phase")
	descSince    = desc("leads_since_seconds", "When this node took over last, in seconds since 1970.")
	descStep     = desc("step_records_total", "What the operator's steps have counted since it began: in, out, late, error and their own.", "step", "what")
)

// Describe implements prometheus.Collector.
func (e *Engine) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descState, descLeads, descSeq, descBehind, descLag, descLagFor, descMark, descKeys, descBytes, descOutbox, descIn, descOut,
		descSteps, descBusy, descDiverged, descRebuilt, descStep, descBlocked, descIdle, descVolume, descNodeBusy, descCalls, descCheck, descKept, descStands, descSent, descRecov,
		descAgain, descLost, descFailover, descSince, descStepKeys, descStepSize,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (e *Engine) Collect(ch chan<- prometheus.Metric) {
	for _, u := range e.all() {
		o, r := u.op.Load(), u.report()
		put := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{o.Account, o.Name, strconv.Itoa(max(u.instance(), 1))}, labels...)...)
		}
		leads := 0.0
		if r.Leads {
			leads = 1
		}
		put(descState, prometheus.GaugeValue, 1, string(o.State))
		put(descLeads, prometheus.GaugeValue, leads)
		put(descSeq, prometheus.GaugeValue, float64(r.Seq))
		put(descBehind, prometheus.GaugeValue, float64(r.Behind))
		put(descLag, prometheus.GaugeValue, float64(r.Lag))
		put(descLagFor, prometheus.GaugeValue, r.LagFor)
		if !r.Watermark.IsZero() {
			put(descMark, prometheus.GaugeValue, float64(r.Watermark.UnixMilli())/1000)
		}
		put(descKeys, prometheus.GaugeValue, float64(r.Keys))
		put(descBytes, prometheus.GaugeValue, float64(r.Bytes))
		for _, s := range r.Sizes {
			put(descStepKeys, prometheus.GaugeValue, float64(s.Keys), s.Step)
			put(descStepSize, prometheus.GaugeValue, float64(s.Bytes), s.Step)
		}
		for _, l := range r.Outbox {
			put(descOutbox, prometheus.GaugeValue, float64(l.Bytes), l.Topic)
		}
		put(descIn, prometheus.CounterValue, float64(r.Stats.In))
		put(descOut, prometheus.CounterValue, float64(r.Stats.Out))
		put(descSteps, prometheus.CounterValue, float64(r.Stats.Steps))
		put(descBusy, prometheus.CounterValue, r.Stats.Busy.Seconds())
		put(descDiverged, prometheus.CounterValue, float64(r.Stats.Diverged))
		put(descRebuilt, prometheus.CounterValue, float64(r.Stats.Rebuilt))
		put(descBlocked, prometheus.CounterValue, r.Stats.Blocked.Seconds())
		put(descIdle, prometheus.CounterValue, r.Stats.Idle.Seconds())
		for what, n := range map[string]uint64{"input": r.Stats.InBytes, "delta": r.Stats.DeltaBytes, "log": r.Stats.LogBytes} {
			put(descVolume, prometheus.CounterValue, float64(n), what)
		}
		for _, l := range r.Loads {
			put(descNodeBusy, prometheus.CounterValue, time.Duration(l.Busy).Seconds(), l.Step)
			put(descCalls, prometheus.CounterValue, float64(l.Calls), l.Step)
		}
		put(descCheck, prometheus.GaugeValue, r.Checkpoint)
		put(descKept, prometheus.GaugeValue, float64(r.Kept))
		put(descStands, prometheus.GaugeValue, r.Stands)
		put(descSent, prometheus.CounterValue, float64(r.Stats.CheckpointBytes))
		put(descRecov, prometheus.CounterValue, float64(r.Stats.Recovered))
		put(descAgain, prometheus.CounterValue, float64(r.Stats.Again))
		put(descLost, prometheus.CounterValue, float64(r.Stats.Lost))
		if !r.Stats.Since.IsZero() {
			put(descSince, prometheus.GaugeValue, float64(r.Stats.Since.UnixMilli())/1000)
			put(descFailover, prometheus.GaugeValue, r.Stats.Elect.Seconds(), "elect")
			put(descFailover, prometheus.GaugeValue, r.Stats.Apply.Seconds(), "apply")
			put(descFailover, prometheus.GaugeValue, r.Stats.FirstOutput.Seconds(), "first_output")
		}
		for _, c := range r.Counts {
			put(descStep, prometheus.CounterValue, float64(c.N), c.Step, c.Name)
		}
	}
}
