"""Parties on machines of their own, joined by a NATS broker that may read nothing of theirs.

`jwt` and `credentials` say who somebody is, `authority` is the folder of whoever decides that,
`registry` and `enrolment` let newcomers in, `broker` runs the broker.
"""
