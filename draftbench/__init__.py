"""draftbench: does speculative decoding pay, on this hardware, with this model, for this work?"""
