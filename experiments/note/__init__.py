"""What the technical note says in numbers: docs/note/figures.json and its pictures.

    python -m experiments.note             # what is computed or read, and the pictures: seconds
    python -m experiments.note checked     # what `dpb.verify` computes too: a minute
    python -m experiments.note measured    # and what is simulated: some eight minutes of a core

`docs/note/note.typ` reads the file and holds no number of its own. `exact` computes, `board` reads
the leaderboard and the audits, `checked` asks `dpb.verify`, `measured` simulates on seeds from 0.
"""
