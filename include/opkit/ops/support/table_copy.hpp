// TableCopy: a copy by one table of indices for each axis: output element (o0, o1, …) is input
// element (t0[o0], t1[o1], …). Gather, Pad and nearest-neighbour Resize are this copy.
#ifndef OPKIT_OPS_SUPPORT_TABLE_COPY_HPP_
#define OPKIT_OPS_SUPPORT_TABLE_COPY_HPP_

#include "opkit/ops/support/strided_copy.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {

// Copies a dense tensor by tables of indices. An operator keeps one object and reuses it, so that
// later runs allocate little.
//
//   copy.Start(ItemSize(x.dtype()));
//   copy.Keep(rows);
//   copy.Axis(columns) = {0, 2, -1};       // the output has three: 0, 2 and a filled one
//   copy.Run(x.raw_data(), y->raw_mutable_data(), &fill);
class TableCopy {
 public:
  // Begins a new copy, of elements of `item_bytes` bytes.
  void Start(int64_t item_bytes) {
    item_ = item_bytes;
    used_ = 0;
    ready_ = false;
  }
  // Adds the next axis, outermost first, and returns its empty table. Fill the table before adding
  // the next axis: for each index of the output the index of the input, or a negative number for
  // `fill`.
  std::vector<int64_t>& Axis(int64_t input_extent) {
    TableAxis& axis = Add(input_extent);
    axis.table.clear();
    return axis.table;
  }
  // Adds the next axis, without a table: every index of the output is the same index of the input.
  void Keep(int64_t extent) {
    if (used_ > 0 && axes_[used_ - 1].kept)
      axes_[used_ - 1].extent *= extent;
    else
      Add(extent).kept = true;
  }

  // Copies. `fill` points to one element; it may be null if no table has a negative index. May be
  // called several times, with different tensors.
  void Run(const void* from, void* to, const void* fill = nullptr) {
    if (!ready_) Prepare();
    from_ = static_cast<const char*>(from);
    to_ = static_cast<char*>(to);
    fill_ = static_cast<const char*>(fill);
    if (empty_) return;
    if (used_ == 0) return CopyBytes(to, from, block_);
    if (by_run_) return RunRows<RunsOf>();
    const bool fixed = detail::WithElementOfSize(block_, [&](auto element) {
      using T = decltype(element);
      repeats_ > 1 ? RunRows<RepeatsOf<T>>() : RunRows<ElementsOf<T>>();
    });
    if (!fixed) RunRows<BlocksOf>();
  }

 private:
  struct TableAxis {
    int64_t extent = 0, step = 0;  // extent of the input; step in bytes
    bool kept = false;
    std::vector<int64_t> table;
    int64_t size() const { return kept ? extent : static_cast<int64_t>(table.size()); }
  };
  // A part of the last axis whose elements are neighbours in the output and the input, or are all
  // `fill`.
  struct RunOfIndices {
    int64_t to, from, size;  // negative `from`: fill
  };

  TableAxis& Add(int64_t extent) {
    if (used_ == axes_.size()) axes_.emplace_back();
    TableAxis& axis = axes_[used_++];
    axis.extent = extent;
    axis.kept = false;
    return axis;
  }
  TableAxis& last() { return axes_[used_ - 1]; }
  const TableAxis& last() const { return axes_[used_ - 1]; }
  void Prepare() {
    ready_ = true;
    block_ = item_;
    while (used_ > 0 && last().kept) block_ *= axes_[--used_].extent;
    empty_ = block_ == 0;
    for (size_t i = 0; i < used_; ++i) empty_ |= axes_[i].size() == 0;
    if (empty_ || used_ == 0) return;
    SetSteps();
    FindRuns();
    by_run_ = static_cast<int64_t>(runs_.size()) * 4 <= last().size();
    FindRepeats();
  }
  void SetSteps() {
    int64_t step = block_;
    for (size_t i = used_; i-- > 0;) {
      axes_[i].step = step;
      step *= axes_[i].extent;
    }
  }
  void FindRuns() {
    runs_.clear();
    const std::vector<int64_t>& table = last().table;
    for (size_t o = 0; o < table.size(); ++o) {
      const int64_t index = table[o];
      if (!runs_.empty()) {
        RunOfIndices& run = runs_.back();
        if (index < 0 ? run.from < 0 : run.from >= 0 && index == run.from + run.size) {
          ++run.size;
          continue;
        }
      }
      runs_.push_back({static_cast<int64_t>(o), index < 0 ? -1 : index, 1});
    }
  }
  // Sets repeats_ if a row repeats every element equally often, as in an image that is enlarged.
  void FindRepeats() {
    const std::vector<int64_t>& table = last().table;
    const auto size = static_cast<int64_t>(table.size());
    repeats_ = 1;
    int64_t times = 0;
    while (times < size && table[detail::Index(times)] == 0) ++times;
    if (times < 2 || size % times != 0 || block_ * size > detail::kCopyChunkBytes) return;
    for (int64_t o = 0; o < size; ++o)
      if (table[detail::Index(o)] != o / times) return;
    repeats_ = times;
  }
  void Fill(char* to, int64_t bytes) const {
    if (item_ == 1) {
      std::memset(to, *fill_, static_cast<size_t>(bytes));
    } else {
      detail::WithElementOfSize(item_, [&](auto value) {
        std::memcpy(&value, fill_, sizeof(value));
        for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(sizeof(value)))
          std::memcpy(to + at, &value, sizeof(value));
      });
    }
  }

  // The kernels for rows. Row() copies the part [begin, end) of a row; `from` points to the input's
  // element with index 0. RunsOf copies runs of neighbouring indices by memcpy.
  struct RunsOf {
    static void Row(const TableCopy& self, char* to, const char* from, int64_t begin, int64_t end) {
      for (const RunOfIndices& run : self.runs_) {
        const int64_t first = (std::max)(run.to, begin);
        const int64_t last = (std::min)(run.to + run.size, end);
        if (first >= last) continue;
        char* place = to + first * self.block_;
        const int64_t bytes = (last - first) * self.block_;
        if (run.from < 0) {
          self.Fill(place, bytes);
        } else {
          std::memcpy(place, from + (run.from + first - run.to) * self.block_,
                      static_cast<size_t>(bytes));
        }
      }
    }
  };
  // Copies element by element, each of type T.
  template <class T>
  struct ElementsOf {
    static void Row(const TableCopy& self, char* to, const char* from, int64_t begin, int64_t end) {
      const int64_t* table = self.last().table.data();
      constexpr auto kItem = static_cast<int64_t>(sizeof(T));
      for (int64_t o = begin; o < end; ++o)
        if (table[o] >= 0) [[likely]]
          detail::MoveElement<T>(to + o * kItem, from + table[o] * kItem);
        else
          self.Fill(to + o * kItem, kItem);
    }
  };
  // Repeats each element `repeats_` times. Only for whole rows.
  template <class T>
  struct RepeatsOf {
    static void Row(const TableCopy& self, char* to, const char* from, int64_t, int64_t end) {
      const int64_t times = self.repeats_, n = end / times;
      if (times == 2) return Repeat<2>(to, from, n);
      if (times == 4) return Repeat<4>(to, from, n);
      constexpr auto kItem = static_cast<int64_t>(sizeof(T));
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < times; ++k)
          detail::MoveElement<T>(to + (i * times + k) * kItem, from + i * kItem);
    }
    template <int kTimes>
    static void Repeat(char* to, const char* from, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        T value[kTimes];
        std::memcpy(value, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
        for (int k = 1; k < kTimes; ++k) value[k] = value[0];
        std::memcpy(to + i * static_cast<int64_t>(sizeof(value)), value, sizeof(value));
      }
    }
  };
  // Copies block by block. For blocks that do not have the size of an element type.
  struct BlocksOf {
    static void Row(const TableCopy& self, char* to, const char* from, int64_t begin, int64_t end) {
      const int64_t* table = self.last().table.data();
      for (int64_t o = begin; o < end; ++o) {
        if (table[o] >= 0) {
          std::memcpy(to + o * self.block_, from + table[o] * self.block_,
                      static_cast<size_t>(self.block_));
        } else {
          self.Fill(to + o * self.block_, self.block_);
        }
      }
    }
  };

  // An iterator over the rows of the output. offset() is the row's offset in the input, in bytes;
  // -1 for a row of `fill`.
  class RowCursor {
   public:
    RowCursor(const TableCopy& copy, int64_t row) : copy_(copy) {
      inner_ = copy.used_ > 1 ? &copy.axes_[copy.used_ - 2] : nullptr;
      const int64_t rows = inner_ ? inner_->size() : 1;
      at_ = row % rows;
      outer_ = row / rows;
      FindOuter();
    }
    int64_t offset() const {
      if (!inner_ || outer_offset_ < 0) return outer_offset_;
      const int64_t index = inner_->kept ? at_ : inner_->table[detail::Index(at_)];
      return index < 0 ? -1 : outer_offset_ + index * inner_->step;
    }
    void Next() {
      if (!inner_ || ++at_ < inner_->size()) return;
      at_ = 0;
      ++outer_;
      FindOuter();
    }

   private:
    void FindOuter() {
      outer_offset_ = 0;
      int64_t rest = outer_;
      for (size_t i = copy_.used_ - (inner_ ? 2 : 1); i-- > 0;) {
        const TableAxis& axis = copy_.axes_[i];
        int64_t index = rest % axis.size();
        rest /= axis.size();
        if (!axis.kept) index = axis.table[detail::Index(index)];
        if (index < 0) {
          outer_offset_ = -1;
          return;
        }
        outer_offset_ += index * axis.step;
      }
    }
    const TableCopy& copy_;
    const TableAxis* inner_;
    int64_t at_, outer_, outer_offset_;
  };

  // Copies all rows (one for each position of the axes before the last) in pieces. A row that
  // equals the previous one is copied from it.
  template <class Rows>
  void RunRows() const {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < used_; ++i) rows *= axes_[i].size();
    const int64_t row_bytes = last().size() * block_;
    const int64_t piece = (std::max)(int64_t{1}, detail::kCopyChunkBytes / block_);
    const int64_t pieces = (last().size() - 1) / piece + 1;
    const int64_t unit_bytes = (std::min)(piece * block_, row_bytes);
    const int64_t grain = (std::max)(int64_t{1}, detail::kCopyChunkBytes / unit_bytes);
    ParallelForRange(rows * pieces, grain, [&](int64_t begin, int64_t end) {
      RowCursor row(*this, begin / pieces);
      char* to = to_ + begin / pieces * row_bytes;
      int64_t before = -1;  // offset in the input of this chunk's previous row; -1: none
      for (int64_t unit = begin, k = begin % pieces; unit < end; ++unit) {
        const int64_t first = k * piece, last_index = (std::min)(first + piece, last().size());
        const int64_t from = row.offset();
        if (from < 0)
          Fill(to + first * block_, (last_index - first) * block_);
        else if (from == before && pieces == 1)
          std::memcpy(to, to - row_bytes, static_cast<size_t>(row_bytes));
        else
          Rows::Row(*this, to, from_ + from, first, last_index);
        before = from;
        if (++k < pieces) continue;
        k = 0;
        to += row_bytes;
        row.Next();
      }
    });
  }

  int64_t item_ = 1, block_ = 1;  // bytes of an element, and of an entry of the last table
  size_t used_ = 0;               // entries of axes_ in use; the others keep their tables' memory
  std::vector<TableAxis> axes_;
  bool ready_ = false, empty_ = false, by_run_ = false;
  int64_t repeats_ = 1;
  std::vector<RunOfIndices> runs_;
  const char* from_ = nullptr;
  const char* fill_ = nullptr;
  char* to_ = nullptr;
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_TABLE_COPY_HPP_
