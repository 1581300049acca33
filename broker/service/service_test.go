package service

import (
	"testing"

	"github.com/heraldmq/herald/broker/auth"
	"github.com/heraldmq/herald/broker/front"
)

func TestAccountsAreServedOnceAndUntilTheEnd(t *testing.T) {
	srv, err := front.New(front.Options{Auth: auth.Config{Accounts: []auth.Account{{Name: "A"}, {Name: "B"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	a, b := srv.Account("A"), srv.Account("B")
	var s Subscriptions
	calls := map[string]int{}
	handlers := map[string]front.Handler{
		"X.ONE": func(m *front.Message) { calls[m.Account.Name()+" one"]++ },
		"X.TWO": func(m *front.Message) { calls[m.Account.Name()+" two"]++ },
	}
	serve := func(a *front.Account) {
		t.Helper()
		if err := s.Serve(a, handlers); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(want string, one, two int) {
		t.Helper()
		clear(calls)
		for _, a := range []*front.Account{a, b} {
			p := a.NewPublisher()
			p.Publish("X.ONE", "", nil, nil)
			p.Publish("X.TWO", "", nil, nil)
			p.Flush()
		}
		if calls[want+" one"] != one || calls[want+" two"] != two || len(calls) > 2 && one == 0 {
			t.Errorf("%s: %v", want, calls)
		}
	}
	serve(a)
	serve(a)
	ask("A", 1, 1)
	serve(b)
	ask("B", 1, 1)
	s.Keep([]*front.Account{b})
	ask("A", 0, 0)
	ask("B", 1, 1)
	s.End(b)
	ask("B", 0, 0)
	serve(a)
	s.Close()
	serve(b)
	ask("A", 0, 0)
	ask("B", 0, 0)
}

func TestAnAccountIsServedWholeOrNotAtAll(t *testing.T) {
	srv, err := front.New(front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	var s Subscriptions
	none := func(*front.Message) { t.Error("it was called") }
	if err := s.Serve(srv.GlobalAccount(), map[string]front.Handler{"good": none, "not..good": none}); err == nil {
		t.Fatal("a subject that isn't valid was taken")
	}
	if srv.GlobalAccount().HasInterest("good") {
		t.Error("half of it is subscribed")
	}
}
