//! Golden bytes of the state.
