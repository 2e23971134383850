"""The zoo: tiny random models of every Hugging Face type that has attention; how many attentions are fused, and why
the others are not.
"""
