package auth

import "testing"

func TestRightsOnAdvertisements(t *testing.T) {
	list := func(allow, deny []string) *SubjectPermission { return &SubjectPermission{Allow: allow, Deny: deny} }
	plain := &Permissions{Publish: list([]string{"orders.>"}, nil), Subscribe: list([]string{"in.>"}, []string{"in.secret.>"})}
	own := &Permissions{
		Publish: list([]string{"orders.>"}, nil), Subscribe: list([]string{"in.>"}, nil),
		Advertise: list([]string{"adv.>"}, nil), Discover: list([]string{"out.>"}, []string{"in.hidden"}),
		Sample: list([]string{}, nil), Enforce: list([]string{"adv.>"}, []string{"adv.free"}),
	}
	for _, c := range []struct {
		name string
		p    *Permissions
		may  func(*Rules) bool
		want bool
	}{
		{"who has no permissions may all", nil, func(r *Rules) bool {
			return r.Enforce("x") && r.Sample("x") && r.Discover("x") && r.Advertise("x", true)
		}, true},
		{"publishers advertise what they may publish", plain, func(r *Rules) bool { return r.Advertise("orders.*", true) }, true},
		{"and nothing wider", plain, func(r *Rules) bool { return r.Advertise("*.created", true) }, false},
		{"readers what they may read", plain, func(r *Rules) bool { return r.Advertise("in.a", false) }, true},
		{"not what they may only publish", plain, func(r *Rules) bool { return r.Advertise("orders.a", false) }, false},
		{"seen is what may be subscribed to", plain, func(r *Rules) bool { return r.Discover("in.a") }, true},
		{"not what may not", plain, func(r *Rules) bool { return r.Discover("orders.a") }, false},
		{"nor what is denied", plain, func(r *Rules) bool { return r.Discover("in.secret.a") }, false},
		{"enforcing wants its own right", plain, func(r *Rules) bool { return r.Enforce("orders.a") }, false},
		{"an own right to advertise takes the place", own, func(r *Rules) bool { return r.Advertise("adv.x", true) }, true},
		{"of the other", own, func(r *Rules) bool { return r.Advertise("orders.x", true) }, false},
		{"discover adds", own, func(r *Rules) bool { return r.Discover("out.x") && r.Discover("in.x") }, true},
		{"and takes away", own, func(r *Rules) bool { return r.Discover("in.hidden") }, false},
		{"an empty list is nothing", own, func(r *Rules) bool { return r.Sample("in.x") }, false},
		{"enforce by list", own, func(r *Rules) bool { return r.Enforce("adv.x") }, true},
		{"without what is denied", own, func(r *Rules) bool { return r.Enforce("adv.*") }, false},
	} {
		r, err := Compile(c.p)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.may(r); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if _, err := Compile(&Permissions{Sample: list([]string{"a..b"}, nil)}); err == nil {
		t.Error("a pattern that is no subject was taken")
	}
}
