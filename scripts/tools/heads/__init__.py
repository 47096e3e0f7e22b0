"""`scripts/train-head`: a classification head on a frozen encoder, from labelled texts, in minutes on a CPU."""
