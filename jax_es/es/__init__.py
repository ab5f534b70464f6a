"""Who is evaluated, and how θ moves: evolution strategies, one a file."""
