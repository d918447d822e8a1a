// SortRows: sorts the elements of many rows on CUDA by a bitonic network. Source: Batcher, "Sorting
// networks and their applications", 1968.
#ifndef OPKIT_BACKENDS_CUDA_OPS_ROWS_ROW_SORT_HPP_
#define OPKIT_BACKENDS_CUDA_OPS_ROWS_ROW_SORT_HPP_

#include "opkit/backends/cuda/ops/cuda_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// A step of the network over rows of `extent` elements, a power of two. It makes sorted runs of
// `run` elements, of which every other one has the opposite order.
template <class E, class Order>
struct BitonicStep {
  E* elements;
  int64_t extent;
  Order order;

  // Puts the two elements of pair `pair` in order, which are `distance` elements apart.
  OPKIT_DEVICE void Compare(int64_t pair, int64_t run, int64_t distance) const {
    const int64_t first = pair / distance * 2 * distance + pair % distance;
    E &a = elements[first], &b = elements[first + distance];
    const bool is_turned = (first & (extent - 1) & run) != 0;
    if (is_turned ? order.ComesBefore(a, b) : order.ComesBefore(b, a)) {
      const E kept = a;
      a = b;
      b = kept;
    }
  }
};
// The step with one distance: a thread for each pair.
template <class E, class Order>
struct BitonicPairs {
  BitonicStep<E, Order> step;
  int64_t run, distance;
  OPKIT_DEVICE void operator()(int64_t pair) const { step.Compare(pair, run, distance); }
};
// The steps whose pairs lie in one tile, for runs from `first_run` to `last_run`: a team for each
// tile.
template <class E, class Order>
struct BitonicTiles {
  BitonicStep<E, Order> step;
  int64_t tile, first_run, last_run;
  template <class Team>
  OPKIT_DEVICE void operator()(int64_t number, const Team& team) const {
    const int64_t pairs = tile / 2;
    for (int64_t run = first_run; run <= last_run; run *= 2)
      for (int64_t distance = (run < tile ? run : tile) / 2; distance > 0; distance /= 2) {
        team.Each(pairs, [&](int64_t pair) { step.Compare(number * pairs + pair, run, distance); });
        team.Sync();
      }
  }
};

// Returns the elements of a row for SortRows: a power of two that is not below `extent`.
inline int64_t SortedExtent(int64_t extent) {
  int64_t power = 1;
  while (power < extent) power *= 2;
  return power;
}
// Issues the sort of `rows` dense rows of `extent` elements on the device, a power of two.
// `order.ComesBefore(a, b)` is true if a is before b.
template <class E, class Order>
void SortRows(CUDAContext& context, E* elements, int64_t rows, int64_t extent, Order order) {
  constexpr int64_t kTile = 2048;
  if (extent < 2) return;
  const BitonicStep<E, Order> step{elements, extent, order};
  const int64_t tile = extent < kTile ? extent : kTile, tiles = rows * (extent / tile);
  const auto in_tiles = [&](int64_t first_run, int64_t last_run) {
    ParallelForTeamsOf<256>(context, tiles,
                            BitonicTiles<E, Order>{step, tile, first_run, last_run});
  };
  in_tiles(2, tile);
  for (int64_t run = 2 * tile; run <= extent; run *= 2) {
    for (int64_t distance = run / 2; distance >= tile; distance /= 2)
      ParallelFor(context, rows * (extent / 2), BitonicPairs<E, Order>{step, run, distance});
    in_tiles(run, run);
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_BACKENDS_CUDA_OPS_ROWS_ROW_SORT_HPP_
