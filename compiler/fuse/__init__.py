"""From a softmax to an attention: peel, contraction, certificate."""
