//! Golden bytes of segments.
