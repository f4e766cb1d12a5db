"""A bandit as a service: decisions and rewards over HTTP, from a store that survives crashes.

Two roles and one trust boundary. Rankers (`api`, `rounds`, `catalog`, `journal`) hold released
models only and write down what they are told. The learner (`learner`, `batch`) alone reads rewards
and draws noise. They meet in the store.
"""
