"""Parties on machines of their own, joined by a NATS broker that may read nothing of theirs.

`jwt` and `credentials` say who somebody is, `authority` is the folder of whoever decides that,
`registry` and `enrolment` let newcomers in; `configuration` is the broker's, and `broker` runs it.
`frames` travel over a `connection`: from the server's `switchboard`, which makes `calls` to those
on its `roster`, to the clients' `carrier` and back.
"""
