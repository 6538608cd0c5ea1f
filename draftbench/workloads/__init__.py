"""Real prompts as replayable files: pinned packages in, token ids for one target out."""
