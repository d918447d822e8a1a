// TreeNodes: the trees of an ensemble in one array of nodes of 16 or 24 bytes, and the walk from
// the roots to the leaves. Every comparison is reduced to "v > value", so that a walk has no branch
// but its end, and eight walks go on at once to hide the time that memory takes.
#ifndef OPKIT_OPS_ML_TREE_NODES_HPP_
#define OPKIT_OPS_ML_TREE_NODES_HPP_

#include <cmath>
#include <limits>

#include "opkit/base/index.hpp"
#include "opkit/ops/ml/tree_model.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The walks that one call advances.
inline constexpr int kTreeLanes = 8;

template <class T>
class TreeNodes {
 public:
  struct Node {
    T value;          // the threshold; for a leaf the weight of its only vote
    int32_t feature;  // the column that is compared; 0 for a leaf
    int32_t child;    // the first of two adjacent children; the leaf itself for a leaf
    uint32_t bits;    // kSplit, kNanGoesSecond, kKind…, and above them a number
  };
  static constexpr uint32_t kSplit = 1;
  // A NaN goes to the second child, otherwise to the first.
  static constexpr uint32_t kNanGoesSecond = 2;
  // A value equal to the threshold, or among the set of the node's number, goes to the second
  // child; without these bits a value above the threshold does.
  static constexpr uint32_t kEquals = 4;
  static constexpr uint32_t kIsMember = 8;
  static constexpr int kNumberShift = 4;

  explicit TreeNodes(const TreeModel& model)
      : weight_in_node_(model.num_targets == 1 && model.single_votes()) {
    nodes_.reserve(model.nodes.size());
    for (const int32_t root : model.roots) {
      roots_.push_back(static_cast<int32_t>(nodes_.size()));
      AddTree(model, root);
    }
    leaf_begins_.push_back(static_cast<int32_t>(votes_.size()));
  }

  struct Vote {
    int32_t target;
    T weight;
  };
  int64_t num_trees() const { return static_cast<int64_t>(roots_.size()); }
  // True if there is one target and each leaf has one vote for it, whose weight is leaf_weight().
  bool weight_in_node() const { return weight_in_node_; }
  T leaf_weight(int32_t leaf) const { return nodes_[Index(leaf)].value; }
  // The votes of a leaf.
  std::span<const Vote> votes(int32_t leaf) const {
    const size_t number = nodes_[Index(leaf)].bits >> kNumberShift;
    const int32_t begin = leaf_begins_[number];
    return {votes_.data() + begin, static_cast<size_t>(leaf_begins_[number + 1] - begin)};
  }

  // Walks kTreeLanes trees, or one tree for several rows: leaves[i] becomes the leaf that row x[i]
  // reaches from the root of tree trees[i]. The rows must have a column for every feature, and at
  // least one.
  void Walk(const T* const* x, const int64_t* trees, int32_t* leaves) const {
    int32_t at[kTreeLanes];
    for (int i = 0; i < kTreeLanes; ++i) at[i] = roots_[Index(trees[i])];
    if (has_kinds_)
      Walk<true>(x, at);
    else
      Walk<false>(x, at);
    std::copy(at, at + kTreeLanes, leaves);
  }

 private:
  template <bool kHasKinds>
  void Walk(const T* const* x, int32_t* at) const {
    const Node* nodes = nodes_.data();
    for (int32_t moved = 1; moved != 0;) {
      moved = 0;
      for (int i = 0; i < kTreeLanes; ++i) {
        const Node& node = nodes[at[i]];
        const T v = x[i][node.feature];
        bool second;
        if (kHasKinds && (node.bits & (kEquals | kIsMember)))
          second = v == v ? IsIn(node, v) : (node.bits & kNanGoesSecond) != 0;
        else
          second = (v > node.value) | ((v != v) & ((node.bits >> 1) & 1));
        const int32_t next = node.child + static_cast<int32_t>(second & (node.bits & kSplit));
        moved |= next ^ at[i];
        at[i] = next;
      }
    }
  }
  bool IsIn(const Node& node, T v) const {
    if (node.bits & kEquals) return v == node.value;
    const std::vector<T>& set = sets_[node.bits >> kNumberShift];
    return std::binary_search(set.begin(), set.end(), v);
  }

  // Adds the tree by breadth, so that the nodes near the root, which every walk reads, are
  // together.
  void AddTree(const TreeModel& model, int32_t root) {
    std::vector<int32_t> sources{root};  // sources[i] becomes node first + i
    const size_t first = nodes_.size();
    nodes_.resize(first + 1);
    for (size_t i = 0; i < sources.size(); ++i) {
      const TreeModel::Node& source = model.nodes[Index(sources[i])];
      const auto at = static_cast<int32_t>(first + i);
      if (source.mode == TreeMode::kLeaf) {
        nodes_[first + i] = Leaf(model, source, at);
        continue;
      }
      const auto child = static_cast<int32_t>(nodes_.size());
      nodes_[first + i] = Split(model, source, child, sources);
      nodes_.resize(nodes_.size() + 2);
    }
  }
  Node Leaf(const TreeModel& model, const TreeModel::Node& source, int32_t at) {
    const auto number = static_cast<uint32_t>(leaf_begins_.size());
    leaf_begins_.push_back(static_cast<int32_t>(votes_.size()));
    Node leaf{0, 0, at, number << kNumberShift};
    for (const TreeModel::Vote& vote : model.votes_of(source)) {
      votes_.push_back({vote.target, static_cast<T>(vote.weight)});
      leaf.value = static_cast<T>(vote.weight);
    }
    return leaf;
  }
  // Makes a node of a comparison and adds its children to `sources`. "v <= t" is "not v > t". "v <
  // t" is "v <= t'" with the number t' below t. A NaN goes where the model says: it fails every
  // comparison but "!=".
  Node Split(const TreeModel& model, const TreeModel::Node& source, int32_t child,
             std::vector<int32_t>& sources) {
    Node node{static_cast<T>(source.value), static_cast<int32_t>(source.feature), child, kSplit};
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
        node.bits |= kEquals;
        break;
      case TreeMode::kNotEqual:
        nan_is_true = true;
        node.bits |= kEquals;
        break;
      case TreeMode::kMember: {
        true_is_second = true;
        node.bits |= kIsMember | static_cast<uint32_t>(sets_.size()) << kNumberShift;
        const std::vector<double>& members = model.sets[Index(source.set)];
        std::vector<T>& set = sets_.emplace_back(members.begin(), members.end());
        std::sort(set.begin(), set.end());
        break;
      }
      case TreeMode::kLeaf:
        break;
    }
    has_kinds_ |= (node.bits & (kEquals | kIsMember)) != 0;
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    // A comparison with NaN is false for every v, as is "v < -infinity". "v > NaN" is false too, so
    // the outcome of "false" is the first child then.
    const bool less_than_all = below && node.value == -kInfinity;
    const bool ordered = !(node.bits & (kEquals | kIsMember));
    if (ordered && node.value != node.value) {
      true_is_second = true;
    } else if (less_than_all) {
      // "v < -infinity" is always false, and "v >= -infinity" always true: both are "not v > NaN".
      true_is_second = !true_is_second;
      node.value = std::numeric_limits<T>::quiet_NaN();
    } else if (below) {
      node.value = std::nextafter(node.value, -kInfinity);
    }
    if (nan_is_true == true_is_second) node.bits |= kNanGoesSecond;
    sources.push_back(true_is_second ? source.no : source.yes);
    sources.push_back(true_is_second ? source.yes : source.no);
    return node;
  }

  bool weight_in_node_, has_kinds_ = false;
  std::vector<Node> nodes_;
  std::vector<int32_t> roots_;
  std::vector<std::vector<T>> sets_;
  std::vector<int32_t>
      leaf_begins_;  // by the number of the leaf; the votes end where the next begin
  std::vector<Vote> votes_;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_ML_TREE_NODES_HPP_
