"""The queue: which open round is next. Derived from the tables of `tuner.store`, and rebuilt from them when lost."""
