"""The paged key/value cache: pages of tokens, block tables, prefix reuse, and the tensors behind them.

``pool``, ``prefix`` and ``tables`` say which page holds what and know no tensors; ``storage`` and ``quantise`` hold and
convert the values and know no policy; ``cache`` joins the two for a scheduler. The design is PagedAttention's (Kwon et
al. 2023, arXiv 2309.06180): fixed-size pages, one block table for each request, sharing by reference counts.
Importing this package does no work.
"""
