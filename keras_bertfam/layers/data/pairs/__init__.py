"""Two texts in a row: pairs of segments, questions and passages, inputs and targets."""
