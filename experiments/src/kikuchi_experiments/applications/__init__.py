"""Applications of the families to one task each: symbol detection and face recognition.

`detection` finds the symbols sent through a noisy linear channel; `faces` compares faces by a
machine that has learnt pairs of them, `face_baselines` by the usual linear methods.
"""
