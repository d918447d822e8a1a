// Buffers with a known perfect packing: a time x address rectangle, cut at random from edge to edge
// again and again. The pieces' spans and sizes are kept, their addresses forgotten.
#ifndef OPKIT_TESTS_GRAPH_MEMORY_GUILLOTINE_HPP_
#define OPKIT_TESTS_GRAPH_MEMORY_GUILLOTINE_HPP_

#include <algorithm>
#include <vector>

#include "opkit/graph/memory/arena.hpp"
#include "opkit/op/random.hpp"

// `count` buffers that fill [0, time) x [0, bytes) without a gap, in random order.
inline std::vector<opkit::MemoryInterval> CutRectangle(size_t count, int64_t time, int64_t bytes,
                                                       opkit::RandomGenerator& random) {
  std::vector<opkit::MemoryInterval> pieces = {{0, time, bytes}};
  while (pieces.size() < count) {
    opkit::MemoryInterval& piece = pieces[random() % pieces.size()];
    opkit::MemoryInterval rest = piece;
    const bool in_time = random() % 2 == 0;
    const int64_t extent = in_time ? piece.upper - piece.lower : piece.size;
    if (extent < 2) continue;
    const int64_t cut = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(extent - 1));
    if (in_time) {
      rest.lower = piece.upper = piece.lower + cut;
    } else {
      piece.size = cut;
      rest.size -= cut;
    }
    pieces.push_back(rest);
  }
  for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random() % i]);
  return pieces;
}

#endif  // OPKIT_TESTS_GRAPH_MEMORY_GUILLOTINE_HPP_
