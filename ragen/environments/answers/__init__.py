"""What the question-and-answer environments share: attempts and what they pay, numbers read from text, a helper process."""
