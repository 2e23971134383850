"""Reading what a compile left: pictures of masks, a page of a dump, two dumps compared, the pass that erred."""
