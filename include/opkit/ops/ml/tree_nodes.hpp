// TreeNodes: the trees of an ensemble in one array of nodes of 12 or 16 bytes, and the walk from
// the roots to the leaves. Almost every comparison is reduced to "not v <= value", so that a step
// has no branch, and 16 walks go on at once to hide the time that memory takes.
#ifndef OPKIT_OPS_ML_TREE_NODES_HPP_
#define OPKIT_OPS_ML_TREE_NODES_HPP_

#include <cmath>
#include <limits>

#include "opkit/base/index.hpp"
#include "opkit/ops/ml/tree_model.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The walks that one call advances at most.
inline constexpr int kTreeLanes = 16;

template <class T>
class TreeNodes {
 public:
  // A walk goes on to node + child, or to the node behind it if v <= value is false. A leaf is its
  // own second child: its value is NaN.
  struct Node {
    T value;           // the threshold
    uint32_t feature;  // the column that is compared; 0 for a leaf
    uint32_t child;    // the way to the first child; kLeaf for a leaf
  };
  static constexpr uint32_t kLeaf = ~uint32_t{0};  // -1

  explicit TreeNodes(const TreeModel& model)
      : num_features_(model.num_features),
        has_kinds_(std::any_of(model.nodes.begin(), model.nodes.end(), &HasKind)),
        has_single_votes_(model.single_votes()) {
    nodes_.reserve(model.nodes.size());
    bits_.reserve(model.nodes.size());
    if (has_single_votes_) single_votes_.reserve(model.nodes.size());
    for (const int32_t root : model.roots) {
      roots_.push_back(static_cast<uint32_t>(nodes_.size()));
      AddTree(model, root);
    }
    leaf_begins_.push_back(static_cast<int32_t>(votes_.size()));
  }

  struct Vote {
    int32_t target;
    T weight;
  };
  int64_t num_trees() const { return static_cast<int64_t>(roots_.size()); }
  // True if each leaf has one vote, which is single_vote().
  bool has_single_votes() const { return has_single_votes_; }
  const Vote& single_vote(uint32_t leaf) const { return single_votes_[leaf]; }
  // The votes of a leaf, of trees without single votes.
  std::span<const Vote> votes(uint32_t leaf) const {
    const size_t number = bits_[leaf] >> kNumberShift;
    const int32_t begin = leaf_begins_[number];
    return {votes_.data() + begin, static_cast<size_t>(leaf_begins_[number + 1] - begin)};
  }

  // True if walks read rows that Copy() writes, of num_copied() elements: the columns of x, and
  // again with -infinity for NaN, for the nodes from which a NaN goes to the first child.
  bool has_copies() const { return has_copies_; }
  int64_t num_copied() const { return 2 * num_features_; }
  void Copy(const T* x, T* to) const {
    for (int64_t i = 0; i < num_features_; ++i) {
      to[i] = x[i];
      to[num_features_ + i] = x[i] == x[i] ? x[i] : -std::numeric_limits<T>::infinity();
    }
  }
  // Walks the trees from `first` on, at most kTreeLanes: leaves[i] becomes the leaf that the row x
  // reaches from the root of tree first + i. The row must have a column for every feature, and at
  // least one.
  void WalkTrees(const T* x, int64_t first, int lanes, uint32_t* leaves) const {
    int32_t depth = 0;
    for (int i = 0; i < lanes; ++i) {
      leaves[i] = roots_[Index(first + i)];
      depth = (std::max)(depth, depths_[Index(first + i)]);
    }
    Walk([x](int) { return x; }, lanes, depth, leaves);
  }
  // Walks one tree for rows that are `columns` elements apart, at most kTreeLanes: leaves[i]
  // becomes the leaf that row i reaches.
  void WalkRows(const T* x, int64_t columns, int64_t tree, int lanes, uint32_t* leaves) const {
    const T* rows[kTreeLanes];
    for (int i = 0; i < lanes; ++i) {
      leaves[i] = roots_[Index(tree)];
      rows[i] = x + i * columns;
    }
    Walk([&rows](int i) { return rows[i]; }, lanes, depths_[Index(tree)], leaves);
  }

 private:
  // Each node has a number of bits that plain comparisons do not read. A NaN goes to the first
  // child with this bit, otherwise to the second.
  static constexpr uint32_t kNanGoesFirst = 1;
  // A value equal to the threshold, or among the set of the node's number, goes to the second
  // child; without these bits a value above the threshold does.
  static constexpr uint32_t kEquals = 2;
  static constexpr uint32_t kIsMember = 4;
  // A zero goes to the second child, also where the CPU takes a denormal threshold as zero.
  static constexpr uint32_t kZeroIsSecond = 8;
  static constexpr int kNumberShift = 4;  // above the bits: the number of the leaf or of the set

  // True if a comparison is not "not v <= value", or a NaN as -infinity would go to the second
  // child.
  static bool HasKind(const TreeModel::Node& node) {
    const T value = static_cast<T>(node.value);
    return node.mode != TreeMode::kLeaf && (node.mode > TreeMode::kGreater || value != value ||
                                            value == -std::numeric_limits<T>::infinity());
  }

  template <class RowOf>
  void Walk(RowOf row_of, int lanes, int32_t depth, uint32_t* at) const {
    // A thread that takes denormal numbers as zeros takes smallest_ as zero.
    if (has_kinds_ || (has_zero_bounds_ && smallest_ == 0))
      Descend<true>(row_of, lanes, depth, at);
    else if (lanes == kTreeLanes)  // a constant, for which the compiler unrolls the loops
      Descend<false>(row_of, std::integral_constant<int, kTreeLanes>(), depth, at);
    else
      Descend<false>(row_of, lanes, depth, at);
  }
  template <bool kIsGeneral, class RowOf, class Lanes>
  void Descend(RowOf row_of, Lanes lanes, int32_t depth, uint32_t* at) const {
    const Node* nodes = nodes_.data();
    const auto step = [&] {
      for (int i = 0; i < lanes; ++i) {
        uint32_t here = at[i];
        // Without this the compiler gathers with vector instructions, which is slower.
        asm("" : "+r"(here));
        const Node& node = nodes[here];
        const T v = row_of(i)[node.feature];
        bool second = !(v <= node.value);
        if constexpr (kIsGeneral) second = IsSecond(here, v, second);
        at[i] = here + node.child + static_cast<uint32_t>(second);
      }
    };
    // In a tree of many depths most walks end early: every fourth step looks for it.
    for (int32_t i = depth % 4; i > 0; --i) step();
    for (int32_t left = depth / 4; left > 0; --left) {
      uint32_t all = kLeaf;
      for (int i = 0; i < lanes; ++i) all &= nodes[at[i]].child;
      if (all == kLeaf) break;
      for (int i = 0; i < 4; ++i) step();
    }
  }
  bool IsSecond(uint32_t at, T v, bool is_above) const {
    const uint32_t bits = bits_[at];
    if (v != v) return !(bits & kNanGoesFirst);
    if (bits & kEquals) return v == nodes_[at].value;
    if (bits & kZeroIsSecond) return is_above || v == 0;
    if (!(bits & kIsMember)) return is_above;
    const std::vector<T>& set = sets_[bits >> kNumberShift];
    return std::binary_search(set.begin(), set.end(), v);
  }

  // Adds the tree by breadth, so that the nodes near the root, which every walk reads, are
  // together.
  void AddTree(const TreeModel& model, int32_t root) {
    std::vector<int32_t> sources{root}, depths{0};  // in the order of their nodes
    for (size_t i = 0; i < sources.size(); ++i) {
      const TreeModel::Node& source = model.nodes[Index(sources[i])];
      if (source.mode == TreeMode::kLeaf) {
        AddLeaf(model, source);
        continue;
      }
      AddSplit(model, source, static_cast<uint32_t>(sources.size() - i), sources);
      depths.resize(sources.size(), depths[i] + 1);
    }
    depths_.push_back(depths.back());
  }
  void AddLeaf(const TreeModel& model, const TreeModel::Node& source) {
    nodes_.push_back({std::numeric_limits<T>::quiet_NaN(), 0, kLeaf});
    const std::span<const TreeModel::Vote> votes = model.votes_of(source);
    if (has_single_votes_) {
      bits_.push_back(0);
      single_votes_.push_back({votes[0].target, static_cast<T>(votes[0].weight)});
      return;
    }
    bits_.push_back(static_cast<uint32_t>(leaf_begins_.size()) << kNumberShift);
    leaf_begins_.push_back(static_cast<int32_t>(votes_.size()));
    for (const TreeModel::Vote& vote : votes)
      votes_.push_back({vote.target, static_cast<T>(vote.weight)});
  }
  // Adds a node of a comparison, and its children to `sources`. "v <= t" is "not v > t". "v < t" is
  // "v <= t'" with the number t' below t. A NaN goes where the model says: it fails every
  // comparison but "!=".
  void AddSplit(const TreeModel& model, const TreeModel::Node& source, uint32_t child,
                std::vector<int32_t>& sources) {
    Node node{static_cast<T>(source.value), static_cast<uint32_t>(source.feature), child};
    uint32_t bits = 0;
    bool true_is_second = false, nan_is_true = source.nan_goes_true;
    bool below = false;
    switch (source.mode) {
      case TreeMode::kLessEqual:
        break;
      case TreeMode::kLess:
        below = true;
        break;
      case TreeMode::kGreaterEqual:
        below = true_is_second = true;
        break;
      case TreeMode::kGreater:
        true_is_second = true;
        break;
      case TreeMode::kEqual:
        true_is_second = true;
        bits |= kEquals;
        break;
      case TreeMode::kNotEqual:
        nan_is_true = true;
        bits |= kEquals;
        break;
      case TreeMode::kMember: {
        true_is_second = true;
        bits |= kIsMember | static_cast<uint32_t>(sets_.size()) << kNumberShift;
        const std::vector<double>& members = model.sets[Index(source.set)];
        std::vector<T>& set = sets_.emplace_back(members.begin(), members.end());
        std::sort(set.begin(), set.end());
        break;
      }
      case TreeMode::kLeaf:
        break;
    }
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    // A comparison with NaN is false for every v, as is "v <= NaN": the outcome "false" is the
    // second child then. "v < -infinity" is always false too, and "v >= -infinity" always true.
    if (!(bits & (kEquals | kIsMember)) && node.value != node.value)
      true_is_second = false;
    else if (below && node.value == -kInfinity)
      node.value = std::numeric_limits<T>::quiet_NaN();
    else if (below) {
      // The number below zero is denormal.
      if (node.value <= 0 && node.value > -(std::numeric_limits<T>::min)()) {
        bits |= kZeroIsSecond;
        has_zero_bounds_ = true;
      }
      node.value = std::nextafter(node.value, -kInfinity);
    }
    if (nan_is_true != true_is_second) {
      bits |= kNanGoesFirst;
      has_copies_ |= !has_kinds_;
      if (!has_kinds_) node.feature += static_cast<uint32_t>(num_features_);
    }
    nodes_.push_back(node);
    bits_.push_back(bits);
    if (has_single_votes_) single_votes_.emplace_back();
    sources.push_back(true_is_second ? source.no : source.yes);
    sources.push_back(true_is_second ? source.yes : source.no);
  }

  int64_t num_features_;
  bool has_kinds_, has_single_votes_, has_copies_ = false;
  bool has_zero_bounds_ = false;  // a node has kZeroIsSecond
  T smallest_ = std::numeric_limits<T>::denorm_min();
  std::vector<Node> nodes_;
  std::vector<uint32_t> bits_;      // of each node
  std::vector<uint32_t> roots_;     // of each tree
  std::vector<int32_t> depths_;     // of each tree: the most steps to a leaf
  std::vector<Vote> single_votes_;  // of each node, of which those of leaves are read
  std::vector<std::vector<T>> sets_;
  std::vector<int32_t>
      leaf_begins_;  // by the number of the leaf; the votes end where the next begin
  std::vector<Vote> votes_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_ML_TREE_NODES_HPP_
