"""Times ops of Parbake beside what else computes the same: `python -m parbake.bench`.

Every figure comes from a run that checked the result against a float64 reference, on cold caches, with peers and the roof
of the memory in the same process. docs/bench.md says how, and what a row holds. Nothing here is imported by `import
parbake`.
"""
