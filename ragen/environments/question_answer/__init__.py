"""Questions and answers from a file of your own: see docs/environments/question_answer.md."""
