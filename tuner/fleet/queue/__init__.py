"""The queue: which round runs next. Derived from the tables of `tuner.evidence`, and rebuilt from them when lost."""
