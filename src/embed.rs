//! The sentence embedder on a thread of its own: tokenise, forward, pool; bounded queue in, vectors out.
