"""The command `fscil`: one function per verb, its options and how things are shown."""
