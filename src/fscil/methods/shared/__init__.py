"""What several methods share: the three verbs, base sessions, heads that grow, encoders that go on learning."""
