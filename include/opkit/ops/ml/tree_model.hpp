// TreeModel: the trees of an ensemble as the attributes of a node describe them, checked. The two
// forms of ai.onnx.ml are read: that of TreeEnsembleClassifier and TreeEnsembleRegressor, in which
// leaves are nodes, and that of TreeEnsemble (opset 5), in which leaves have a list of their own.
// Sources: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html,
// onnx_aionnxml_TreeEnsembleClassifier.html, onnx_aionnxml_TreeEnsemble.html.
#ifndef OPKIT_OPS_ML_TREE_MODEL_HPP_
#define OPKIT_OPS_ML_TREE_MODEL_HPP_

#include <algorithm>
#include <cmath>
#include <span>

#include "opkit/ops/ml/ml_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The comparisons of a node, in the order of TreeEnsemble's numbers. "v <= t" is kLessEqual.
enum class TreeMode : uint8_t {
  kLessEqual,
  kLess,
  kGreaterEqual,
  kGreater,
  kEqual,
  kNotEqual,
  kMember,
  kLeaf
};
inline constexpr const char* kTreeModes[] = {"BRANCH_LEQ",    "BRANCH_LT", "BRANCH_GTE",
                                             "BRANCH_GT",     "BRANCH_EQ", "BRANCH_NEQ",
                                             "BRANCH_MEMBER", "LEAF"};

class TreeModel {
 public:
  struct Node {
    double value = 0;
    int64_t feature = 0;
    TreeMode mode = TreeMode::kLeaf;
    bool nan_goes_true = false;
    int32_t yes = -1, no = -1;  // the children; -1 for a leaf
    int32_t set = -1;           // of kMember
    int32_t first_vote = 0, num_votes = 0;
  };
  struct Vote {
    int32_t target;
    double weight;
  };

  // Reads the form of the older operators. `votes` is the prefix of the attributes of the votes,
  // "class" or "target". Throws kInvalidArgument for attributes that describe no trees.
  static TreeModel OfNodes(const OperatorDef& def, const std::string& votes, int64_t num_targets) {
    TreeModel model(def, num_targets);
    model.ReadNodes(votes);
    model.Check();
    return model;
  }
  // Reads the form of TreeEnsemble, whose leaves are a list of their own.
  static TreeModel OfSplits(const OperatorDef& def) {
    TreeModel model(def, def.args().Get<int64_t>("n_targets", 1));
    model.ReadSplits();
    model.Check();
    return model;
  }

  std::span<const Vote> votes_of(const Node& leaf) const {
    return {votes.data() + leaf.first_vote, static_cast<size_t>(leaf.num_votes)};
  }
  // True if each leaf has one vote.
  bool single_votes() const {
    return std::all_of(nodes.begin(), nodes.end(), [](const Node& node) {
      return node.mode != TreeMode::kLeaf || node.num_votes == 1;
    });
  }

  std::vector<Node> nodes;
  std::vector<int32_t> roots;
  std::vector<Vote> votes;  // of a leaf: those from first_vote on
  std::vector<std::vector<double>> sets;
  int64_t num_targets;
  int64_t num_features = 0;  // the least number of columns that a row has
  bool is_double = false;    // thresholds or weights are given as float64

 private:
  TreeModel(const OperatorDef& def, int64_t targets) : num_targets(targets), def_(&def) {
    if (targets < 1 || targets > kLimit)
      Throw(ErrorCode::kInvalidArgument, def.type(), ": the number of targets is ", targets,
            ", expected 1 or more");
  }
  static constexpr int64_t kLimit = 1 << 27;  // of nodes, votes and features

  const Arguments& args() const { return def_->args(); }
  // Reads a list of floats, or the tensor of the same name with "_as_tensor" behind it.
  std::vector<double> Numbers(const std::string& name) {
    const Attribute* tensor = args().Find(name + "_as_tensor");
    return tensor ? Numbers(tensor->Get<Tensor>()) : FloatList(args(), name);
  }
  std::vector<double> Numbers(const Tensor& tensor) {
    is_double |= tensor.dtype() == DType::kFloat64;
    return NumbersOf<double>(tensor);
  }
  // Throws kInvalidArgument unless a list has `expected` elements, or none if it is optional.
  template <class T>
  void ExpectSize(const std::vector<T>& list, size_t expected, const std::string& name,
                  bool optional = false) const {
    if (list.size() == expected || (optional && list.empty())) return;
    Throw(ErrorCode::kInvalidArgument, def_->type(), ": '", name, "' has ", list.size(),
          " elements, expected ", expected, ", as the other lists");
  }
  int32_t InRange(int64_t value, int64_t limit, const char* what) const {
    if (value < 0 || value >= limit)
      Throw(ErrorCode::kInvalidArgument, def_->type(), ": ", what, " ", value,
            " is not between 0 and ", limit - 1);
    return static_cast<int32_t>(value);
  }
  void Limit(size_t count) const {
    if (count > static_cast<size_t>(kLimit))
      Throw(ErrorCode::kUnsupported, def_->type(), " has ", count,
            " nodes or votes, more than 2^27");
  }

  // Finds nodes by tree and node id.
  struct Place {
    int64_t tree, id;
    int32_t node;
    bool operator<(const Place& other) const {
      return tree != other.tree ? tree < other.tree : id < other.id;
    }
  };
  int32_t Find(const std::vector<Place>& places, int64_t tree, int64_t id) const {
    const auto found = std::lower_bound(places.begin(), places.end(), Place{tree, id, 0});
    if (found == places.end() || found->tree != tree || found->id != id)
      Throw(ErrorCode::kInvalidArgument, def_->type(), ": tree ", tree, " has no node ", id);
    return found->node;
  }
  TreeMode ModeOf(const std::string& name) const {
    for (size_t i = 0; i < std::size(kTreeModes); ++i)
      if (name == kTreeModes[i] && i != static_cast<size_t>(TreeMode::kMember))
        return static_cast<TreeMode>(i);
    Throw(ErrorCode::kInvalidArgument, def_->type(), ": the mode of a node is '", name,
          "', expected BRANCH_LEQ, BRANCH_LT, BRANCH_GTE, BRANCH_GT, BRANCH_EQ, BRANCH_NEQ or "
          "LEAF");
  }

  void ReadNodes(const std::string& prefix) {
    const auto modes = args().Get<std::vector<std::string>>("nodes_modes", {});
    const size_t count = modes.size();
    Limit(count);
    const std::vector<int64_t> trees = IntList(args(), "nodes_treeids"),
                               ids = IntList(args(), "nodes_nodeids"),
                               features = IntList(args(), "nodes_featureids"),
                               yes = IntList(args(), "nodes_truenodeids"),
                               no = IntList(args(), "nodes_falsenodeids"),
                               missing = IntList(args(), "nodes_missing_value_tracks_true");
    const std::vector<double> values = Numbers("nodes_values");
    ExpectSize(trees, count, "nodes_treeids");
    ExpectSize(ids, count, "nodes_nodeids");
    ExpectSize(features, count, "nodes_featureids");
    ExpectSize(yes, count, "nodes_truenodeids");
    ExpectSize(no, count, "nodes_falsenodeids");
    ExpectSize(values, count, "nodes_values");
    ExpectSize(missing, count, "nodes_missing_value_tracks_true", /*optional=*/true);
    std::vector<Place> places(count);
    for (size_t i = 0; i < count; ++i) places[i] = {trees[i], ids[i], static_cast<int32_t>(i)};
    std::sort(places.begin(), places.end());
    for (size_t i = 1; i < count; ++i)
      if (!(places[i - 1] < places[i]))
        Throw(ErrorCode::kInvalidArgument, def_->type(), ": tree ", places[i].tree, " has node ",
              places[i].id, " twice");
    nodes.resize(count);
    std::vector<bool> is_child(count);
    for (size_t i = 0; i < count; ++i) {
      nodes[i].mode = ModeOf(modes[i]);
      if (nodes[i].mode == TreeMode::kLeaf) continue;
      nodes[i].value = values[i];
      nodes[i].feature = InRange(features[i], kLimit, "the feature");
      nodes[i].nan_goes_true = !missing.empty() && missing[i] != 0;
      is_child[Index(nodes[i].yes = Find(places, trees[i], yes[i]))] = true;
      is_child[Index(nodes[i].no = Find(places, trees[i], no[i]))] = true;
    }
    for (size_t i = 0; i < count; ++i)
      if (!is_child[i]) roots.push_back(static_cast<int32_t>(i));
    ReadVotes(prefix, places);
  }
  void ReadVotes(const std::string& prefix, const std::vector<Place>& places) {
    const std::vector<int64_t> trees = IntList(args(), prefix + "_treeids"),
                               ids = IntList(args(), prefix + "_nodeids"),
                               targets = IntList(args(), prefix + "_ids");
    const std::vector<double> weights = Numbers(prefix + "_weights");
    const size_t count = weights.size();
    Limit(count);
    ExpectSize(trees, count, prefix + "_treeids");
    ExpectSize(ids, count, prefix + "_nodeids");
    ExpectSize(targets, count, prefix + "_ids");
    std::vector<int32_t> of(count);
    for (size_t i = 0; i < count; ++i) {
      of[i] = Find(places, trees[i], ids[i]);
      if (nodes[Index(of[i])].mode != TreeMode::kLeaf)
        Throw(ErrorCode::kInvalidArgument, def_->type(), ": node ", ids[i], " of tree ", trees[i],
              " has a weight, but is no leaf");
      ++nodes[Index(of[i])].num_votes;
    }
    int32_t end = 0;
    for (Node& node : nodes) node.first_vote = end, end += node.num_votes, node.num_votes = 0;
    votes.resize(count);
    for (size_t i = 0; i < count; ++i) {
      Node& node = nodes[Index(of[i])];
      votes[Index(node.first_vote + node.num_votes++)] = {
          InRange(targets[i], num_targets, "the class or target of a weight"), weights[i]};
    }
  }

  void ReadSplits() {
    const auto modes = args().Get<Tensor>("nodes_modes");
    if (modes.dtype() != DType::kUInt8)
      Throw(ErrorCode::kTypeMismatch, def_->type(), ": 'nodes_modes' is ", ToString(modes),
            ", expected uint8");
    const std::vector<uint8_t> numbers = modes.ToVector<uint8_t>();
    const size_t count = numbers.size();
    const std::vector<double> values = Numbers(args().Get<Tensor>("nodes_splits")),
                              weights = Numbers(args().Get<Tensor>("leaf_weights"));
    Limit(count + weights.size());
    const std::vector<int64_t> features = IntList(args(), "nodes_featureids"),
                               yes = IntList(args(), "nodes_truenodeids"),
                               no = IntList(args(), "nodes_falsenodeids"),
                               yes_leaf = IntList(args(), "nodes_trueleafs"),
                               no_leaf = IntList(args(), "nodes_falseleafs"),
                               missing = IntList(args(), "nodes_missing_value_tracks_true"),
                               targets = IntList(args(), "leaf_targetids");
    ExpectSize(values, count, "nodes_splits");
    ExpectSize(features, count, "nodes_featureids");
    ExpectSize(yes, count, "nodes_truenodeids");
    ExpectSize(no, count, "nodes_falsenodeids");
    ExpectSize(yes_leaf, count, "nodes_trueleafs");
    ExpectSize(no_leaf, count, "nodes_falseleafs");
    ExpectSize(missing, count, "nodes_missing_value_tracks_true", /*optional=*/true);
    ExpectSize(targets, weights.size(), "leaf_targetids");
    for (size_t i = 0; i < weights.size(); ++i)
      votes.push_back({InRange(targets[i], num_targets, "the target of a leaf"), weights[i]});
    // A leaf becomes a node for each split that leads to it.
    const auto child = [&](int64_t id, bool is_leaf) {
      if (!is_leaf) return InRange(id, static_cast<int64_t>(count), "the node");
      Node leaf;
      leaf.first_vote = InRange(id, static_cast<int64_t>(weights.size()), "the leaf");
      leaf.num_votes = 1;
      nodes.push_back(leaf);
      return static_cast<int32_t>(nodes.size() - 1);
    };
    nodes.resize(count);
    for (size_t i = 0; i < count; ++i) {
      Node node;
      if (numbers[i] > static_cast<uint8_t>(TreeMode::kMember))
        Throw(ErrorCode::kInvalidArgument, def_->type(), ": the mode of node ", i, " is ",
              static_cast<int>(numbers[i]), ", expected a number between 0 and 6");
      node.mode = static_cast<TreeMode>(numbers[i]);
      node.value = values[i];
      node.feature = InRange(features[i], kLimit, "the feature");
      node.nan_goes_true = !missing.empty() && missing[i] != 0;
      node.yes = child(yes[i], yes_leaf[i] != 0);
      node.no = child(no[i], no_leaf[i] != 0);
      if (node.mode == TreeMode::kMember) node.set = num_members_++;
      nodes[i] = node;
    }
    ReadSets();
    for (const int64_t root : IntList(args(), "tree_roots"))
      roots.push_back(InRange(root, static_cast<int64_t>(count), "the root"));
  }
  // Reads the sets of BRANCH_MEMBER: lists that NaNs separate.
  void ReadSets() {
    const Attribute* members = args().Find("membership_values");
    sets.resize(1);
    const std::vector<double> values =
        members ? Numbers(members->Get<Tensor>()) : std::vector<double>();
    for (const double value : values)
      if (std::isnan(value))
        sets.emplace_back();
      else
        sets.back().push_back(value);
    if (sets.back().empty()) sets.pop_back();  // a NaN ends the last list, too
    if (sets.size() != Index(num_members_))
      Throw(ErrorCode::kInvalidArgument, def_->type(), ": 'membership_values' has ", sets.size(),
            " sets, expected one for each of the ", num_members_, " nodes of BRANCH_MEMBER");
  }

  // Throws kInvalidArgument unless each node belongs to one tree, in one place.
  void Check() {
    std::vector<int32_t> open;
    std::vector<bool> seen(nodes.size());
    size_t num_seen = 0;
    const auto see = [&](int32_t node) {
      if (seen[Index(node)])
        Throw(ErrorCode::kInvalidArgument, def_->type(), ": a node is in two places (number ", node,
              " of all nodes), expected trees");
      seen[Index(node)] = true;
      ++num_seen;
      open.push_back(node);
    };
    for (const int32_t root : roots) see(root);
    while (!open.empty()) {
      const Node node = nodes[Index(open.back())];
      open.pop_back();
      if (node.mode == TreeMode::kLeaf) continue;
      num_features = (std::max)(num_features, node.feature + 1);
      see(node.yes);
      see(node.no);
    }
    if (num_seen < nodes.size())
      Throw(ErrorCode::kInvalidArgument, def_->type(), ": ", nodes.size() - num_seen,
            " nodes cannot be reached from a root of a tree");
  }

  const OperatorDef* def_;  // valid while the model is read
  int32_t num_members_ = 0;
};

}}}  // namespace opkit::detail

#endif  // OPKIT_OPS_ML_TREE_MODEL_HPP_
