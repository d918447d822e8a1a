// TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble: sums of the votes of decision
// trees. Sources: https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html,
// onnx_aionnxml_TreeEnsembleRegressor.html, onnx_aionnxml_TreeEnsemble.html.
#ifndef OPKIT_OPS_ML_TREE_ENSEMBLE_HPP_
#define OPKIT_OPS_ML_TREE_ENSEMBLE_HPP_

#include <optional>

#include "opkit/ops/ml/tree_nodes.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

enum class TreeAggregate { kAverage, kSum, kMin, kMax };  // in the order of TreeEnsemble's numbers

// The scores of an ensemble for rows of element type T, before post_transform: for each row and
// target the aggregate of the votes, plus the base value. A target without votes has 0.
template <class T>
class TreeScores {
 public:
  TreeScores(const TreeModel& model, TreeAggregate aggregate, const std::vector<double>& base)
      : trees_(model),
        aggregate_(aggregate),
        num_targets_(model.num_targets),
        base_(base.begin(), base.end()) {}

  // Calls done(row, scores) for each row once, on several threads. `scores` has the row's
  // num_targets numbers, and may be changed. `rows_of(begin, end, buffer)` returns the rows
  // [begin, end) as elements of T; it may put them into `buffer`.
  template <class Rows, class Done>
  void Run(int64_t rows, int64_t columns, Rows&& rows_of, Done&& done) {
    if (rows == 1) {
      int64_t width = columns;
      const T* x = Copied(rows_of(0, 1, buffer_), 1, &width, copies_);
      scores_.assign(Index(num_targets_), Initial());
      RunRow(x);
      Finish(scores_.data());
      done(0, scores_.data());
      return;
    }
    // At least about 10 us of work, since a walk takes about 5 ns, and of many rows a whole block,
    // which reads the trees once.
    const int64_t grain =
        (std::max)(1 + 2048 / (trees_.num_trees() + 1), (std::min)(kBlock, rows / 16));
    ParallelForRange(rows, grain, [&](int64_t begin, int64_t end) {
      std::vector<T> buffer, copies, scores;
      for (; begin < end; begin += kBlock) {
        const int64_t block = (std::min)(end - begin, kBlock);
        int64_t width = columns;
        const T* x = Copied(rows_of(begin, begin + block, buffer), block, &width, copies);
        scores.assign(Index(block * num_targets_), Initial());
        RunBlock(x, block, width, scores.data());
        for (int64_t i = 0; i < block; ++i) {
          Finish(scores.data() + i * num_targets_);
          done(begin + i, scores.data() + i * num_targets_);
        }
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 64;  // rows that go through some trees before the next trees

  // Returns the rows as the walks read them, and sets the number of their columns.
  const T* Copied(const T* x, int64_t rows, int64_t* columns, std::vector<T>& copies) const {
    if (!trees_.has_copies()) return x;
    const int64_t width = trees_.num_copied();
    copies.resize(Index(rows * width));
    for (int64_t row = 0; row < rows; ++row)
      trees_.Copy(x + row * *columns, copies.data() + row * width);
    *columns = width;
    return copies.data();
  }
  // Votes are added in the order of the trees, so that neither the number of rows nor that of
  // threads changes the result.
  void RunRow(const T* x) {
    const int64_t trees = trees_.num_trees();
    leaves_.resize(Index(trees));
    ParallelFor((trees + kTreeLanes - 1) / kTreeLanes,
                [&](int64_t group) {
                  const int64_t first = group * kTreeLanes;
                  trees_.WalkTrees(x, first, Lanes(trees - first), leaves_.data() + first);
                },
                /*grain=*/128);
    Add(leaves_.data(), trees, scores_.data());
  }
  void RunBlock(const T* x, int64_t rows, int64_t columns, T* scores) const {
    uint32_t leaves[kTreeLanes];
    const int64_t trees = trees_.num_trees();
    // The walks of several trees from one row are faster than those of several rows through one
    // tree, unless only few trees are left.
    const int64_t few = (std::min)(rows, int64_t{kTreeLanes / 2});
    int64_t first = 0;
    for (; first < trees && trees - first >= few; first += kTreeLanes) {
      const int lanes = Lanes(trees - first);
      for (int64_t row = 0; row < rows; ++row) {
        trees_.WalkTrees(x + row * columns, first, lanes, leaves);
        Add(leaves, lanes, scores + row * num_targets_);
      }
    }
    for (; first < trees; ++first)
      for (int64_t row = 0; row < rows; row += kTreeLanes) {
        const int lanes = Lanes(rows - row);
        trees_.WalkRows(x + row * columns, columns, first, lanes, leaves);
        for (int i = 0; i < lanes; ++i) Add(leaves + i, 1, scores + (row + i) * num_targets_);
      }
  }
  static int Lanes(int64_t left) { return static_cast<int>((std::min)(left, int64_t{kTreeLanes})); }
  T Initial() const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    return aggregate_ == TreeAggregate::kMin   ? kInfinity
           : aggregate_ == TreeAggregate::kMax ? -kInfinity
                                               : T(0);
  }
  // Adds the votes of leaves to the scores of a row.
  void Add(const uint32_t* leaves, int64_t count, T* scores) const {
    if (!trees_.has_single_votes()) {
      for (int64_t i = 0; i < count; ++i)
        for (const auto& vote : trees_.votes(leaves[i])) AddVote(vote, scores);
    } else if (num_targets_ == 1) {
      T score = *scores;
      for (int64_t i = 0; i < count; ++i)
        score = Joined(score, trees_.single_vote(leaves[i]).weight);
      *scores = score;
    } else {
      for (int64_t i = 0; i < count; ++i) AddVote(trees_.single_vote(leaves[i]), scores);
    }
  }
  void AddVote(const typename TreeNodes<T>::Vote& vote, T* scores) const {
    scores[vote.target] = Joined(scores[vote.target], vote.weight);
  }
  T Joined(T score, T weight) const {
    return aggregate_ == TreeAggregate::kMin   ? (std::min)(score, weight)
           : aggregate_ == TreeAggregate::kMax ? (std::max)(score, weight)
                                               : score + weight;
  }
  void Finish(T* scores) const {
    for (int64_t i = 0; i < num_targets_; ++i) {
      if (aggregate_ == TreeAggregate::kAverage)
        scores[i] /= static_cast<T>((std::max)(trees_.num_trees(), int64_t{1}));
      else if (aggregate_ != TreeAggregate::kSum && scores[i] == Initial())
        scores[i] = 0;
      if (!base_.empty()) scores[i] += base_[base_.size() == 1 ? 0 : Index(i)];
    }
  }

  const TreeNodes<T> trees_;
  const TreeAggregate aggregate_;
  const int64_t num_targets_;
  const std::vector<T> base_;  // one for all targets, one for each, or none
  // Used by calls with one row.
  std::vector<T> buffer_, copies_, scores_;
  std::vector<uint32_t> leaves_;
};

// The base of the three operators. Compares and adds in float if rows, thresholds and weights are
// float32 or float16, otherwise in double.
class TreeOperator : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;

 protected:
  // Makes a model from the attributes.
  virtual TreeModel Read() const = 0;
  virtual TreeAggregate aggregate() const { return TreeAggregate::kSum; }

  // Checks the attributes; constructors call it. Returns the model.
  TreeModel CheckModel() {
    TreeModel model = Read();
    num_features_ = model.num_features;
    num_targets_ = model.num_targets;
    is_double_ = model.is_double;
    base_ = NumbersFrom("base_values");
    if (base_.size() > 1 && Index(num_targets_) != base_.size())
      Throw(ErrorCode::kInvalidArgument, type(), ": 'base_values' has ", base_.size(),
            " elements, expected one or ", num_targets_);
    if (!is_double_) float_.emplace(model, aggregate(), base_);
    return model;
  }
  // Returns a list of floats, or the tensor of the same name with "_as_tensor" behind it.
  std::vector<double> NumbersFrom(const std::string& name) const {
    const Attribute* tensor = def().args().Find(name + "_as_tensor");
    return tensor ? NumbersOf<double>(tensor->Get<Tensor>()) : FloatList(def().args(), name);
  }
  // Calls done(row, scores) with the scores of each row, as float or double.
  template <class Done>
  void ForEachRow(Done&& done) {
    const Tensor& x = DenseInput(0);
    const int64_t rows = NumRows(x), columns = x.dim(-1);
    if (columns < (std::max)(num_features_, int64_t{1}))
      Throw(ErrorCode::kInvalidArgument, type(), ": the rows of ", ToString(x), " have ", columns,
            " columns, but the trees read column ", (std::max)(num_features_, int64_t{1}) - 1);
    const bool is_float = x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat16;
    if (is_float && !is_double_)
      RunAs<float>(*float_, x, rows, columns, done);
    else
      RunAs<double>(Wide(), x, rows, columns, done);
  }

 private:
  TreeScores<double>& Wide() {
    if (!double_) double_.emplace(Read(), aggregate(), base_);
    return *double_;
  }
  template <class T, class Done>
  void RunAs(TreeScores<T>& scores, const Tensor& x, int64_t rows, int64_t columns, Done&& done) {
    const DType dtype = x.dtype();
    const void* data = x.raw_data();
    const auto rows_of = [&](int64_t begin, int64_t end, std::vector<T>& buffer) -> const T* {
      if (dtype == kDTypeOf<T>) return static_cast<const T*>(data) + begin * columns;
      const int64_t count = (end - begin) * columns;
      buffer.resize(Index(count));
      ElementTypes<float, double, float16, int64_t, int32_t>::Visit(dtype, [&]<class From>() {
        const From* from = static_cast<const From*>(data) + begin * columns;
        for (int64_t i = 0; i < count; ++i) buffer[Index(i)] = static_cast<T>(from[i]);
      });
      return buffer.data();
    };
    scores.Run(rows, columns, rows_of, done);
  }

  std::vector<double> base_;
  int64_t num_features_ = 0, num_targets_ = 1;
  bool is_double_ = false;
  std::optional<TreeScores<float>> float_;
  std::optional<TreeScores<double>> double_;  // made when rows need it
};

inline TreeAggregate TreeAggregateOf(const OperatorDef& def) {
  // The schema's values begin with the default.
  constexpr TreeAggregate kOrder[] = {TreeAggregate::kSum, TreeAggregate::kAverage,
                                      TreeAggregate::kMin, TreeAggregate::kMax};
  return kOrder[EnumeratorOf<int>(def.type(), def.args(), "aggregate_function")];
}

inline void InferTreeRegressor(InferenceContext& c) {
  const auto targets = c.def().args().Get<int64_t>("n_targets", 1);
  c.SetOutput(0, DType::kFloat32, SymbolicShape({RowsOf(c).count, Dim(targets)}));
}
inline void InferTreeEnsemble(InferenceContext& c) {
  const auto targets = c.def().args().Get<int64_t>("n_targets", 1);
  c.SetOutput(0, c.input_dtype(0), SymbolicShape({RowsOf(c).count, Dim(targets)}));
}

}  // namespace detail

class TreeEnsembleRegressorOp final : public detail::TreeOperator {
 public:
  TreeEnsembleRegressorOp(const OperatorDef& def, Workspace* ws) : TreeOperator(def, ws) {
    CheckModel();
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t targets = y->dim(1);
    float* out = y->mutable_data<float>();
    ForEachRow([&](int64_t row, auto* scores) {
      detail::TransformScores(transform_, scores, targets);
      for (int64_t i = 0; i < targets; ++i) out[row * targets + i] = static_cast<float>(scores[i]);
    });
    return true;
  }

 private:
  detail::TreeModel Read() const override {
    return detail::TreeModel::OfNodes(def(), "target", GetSingleArgument<int64_t>("n_targets"));
  }
  detail::TreeAggregate aggregate() const override { return detail::TreeAggregateOf(def()); }

  const PostTransform transform_ =
      EnumeratorOf<PostTransform>(type(), def().args(), "post_transform");
};

class TreeEnsembleOp final : public detail::TreeOperator {
 public:
  TreeEnsembleOp(const OperatorDef& def, Workspace* ws) : TreeOperator(def, ws) {
    if (transform_ < 0 || transform_ > 4)
      Throw(ErrorCode::kInvalidArgument, "TreeEnsemble: 'post_transform' is ", transform_,
            ", expected a number between 0 and 4");
    if (aggregate_ < 0 || aggregate_ > 3)
      Throw(ErrorCode::kInvalidArgument, "TreeEnsemble: 'aggregate_function' is ", aggregate_,
            ", expected a number between 0 and 3");
    CheckModel();
  }
  bool RunOnDevice() override {
    Tensor* y = InferredOutput(0);
    const int64_t targets = y->dim(1);
    return Visit<ElementTypes<float, double, float16>>([&]<class T>() {
      T* out = y->mutable_data<T>();
      ForEachRow([&](int64_t row, auto* scores) {
        detail::TransformScores(static_cast<PostTransform>(transform_), scores, targets);
        using Rounded = std::conditional_t<std::is_same_v<T, double>, double, float>;
        for (int64_t i = 0; i < targets; ++i)
          out[row * targets + i] = static_cast<T>(static_cast<Rounded>(scores[i]));
      });
    });
  }

 private:
  detail::TreeModel Read() const override { return detail::TreeModel::OfSplits(def()); }
  detail::TreeAggregate aggregate() const override {
    return static_cast<detail::TreeAggregate>(aggregate_);
  }

  const int64_t transform_ = GetSingleArgument<int64_t>("post_transform");
  const int64_t aggregate_ = GetSingleArgument<int64_t>("aggregate_function");
};

// A classifier of two classes whose weights are all for class 0 gives the score p of class 1, as in
// ONNX Runtime. If no weight is negative, the scores are 1 - p and p, and class 1 is returned for p
// above 0.5; otherwise they are -p and p, and the limit is 0. With LOGISTIC both kinds have the
// scores logistic(-p) and logistic(p). If all weights are for class 1, its score is compared with
// the same limits. Every other classifier returns the first of the classes with the highest score.
class TreeEnsembleClassifierOp final : public detail::TreeOperator {
 public:
  TreeEnsembleClassifierOp(const OperatorDef& def, Workspace* ws) : TreeOperator(def, ws) {
    const detail::TreeModel model = CheckModel();
    for (const auto& vote : model.votes) {
      if (vote.target != model.votes[0].target) only_class_ = -1;
      if (vote.weight < 0) limit_ = 0;
    }
    if (num_classes_ != 2 || model.votes.empty())
      only_class_ = -1;
    else if (only_class_ == 0)
      only_class_ = model.votes[0].target;
  }
  bool RunOnDevice() override {
    void* labels = nullptr;
    float* out = nullptr;
    if (HasOutput(0)) labels = InferredOutput(0)->raw_mutable_data();
    if (HasOutput(1)) out = InferredOutput(1)->mutable_data<float>();
    ForEachRow([&](int64_t row, auto* scores) {
      const int64_t winner = Classify(scores);
      if (labels) labels_.Write(labels, row, winner);
      for (int64_t i = 0; out && i < num_classes_; ++i)
        out[row * num_classes_ + i] = static_cast<float>(scores[i]);
    });
    return true;
  }

 private:
  detail::TreeModel Read() const override {
    return detail::TreeModel::OfNodes(def(), "class", num_classes_);
  }
  // Transforms the scores. Returns the position of the class.
  template <class T>
  int64_t Classify(T* scores) const {
    if (only_class_ < 0) {
      // SOFTMAX_ZERO leaves scores of 0, those of classes without a vote, below all others.
      const bool first = transform_ == PostTransform::kSoftmaxZero;
      if (first) detail::TransformScores(transform_, scores, num_classes_);
      const int64_t best = std::max_element(scores, scores + num_classes_) - scores;
      if (!first) detail::TransformScores(transform_, scores, num_classes_);
      return best;
    }
    const T p = scores[only_class_];
    if (only_class_ == 1) {
      detail::TransformScores(transform_, scores, 2);
    } else {
      const bool logistic = transform_ == PostTransform::kLogistic;
      scores[0] = limit_ == 0 || logistic ? -p : 1 - p;
      scores[1] = p;
      if (logistic || transform_ == PostTransform::kProbit)
        detail::TransformScores(transform_, scores, 2);
    }
    return p > static_cast<T>(limit_);
  }

  const PostTransform transform_ =
      EnumeratorOf<PostTransform>(type(), def().args(), "post_transform");
  const detail::ClassLabels labels_{def(), "classlabels_int64s"};
  const int64_t num_classes_ = labels_.size();
  int only_class_ = 0;  // the class of all weights if there are two classes; -1: of several classes
  double limit_ = 0.5;  // the score above which class 1 is returned
};

namespace detail {

// Declares the attributes that the older two operators share.
inline OpSchema& DeclareTreeNodes(OpSchema& schema) {
  const char* const kDouble = "in place of the list of the same name, float64";
  return schema
      .Input(0, "X", "rows, of shape [N, F] or [F]; NaN is a missing value", MlTypes::DTypes())
      .Arg<std::vector<int64_t>>("nodes_treeids", "for each node: its tree")
      .Arg<std::vector<int64_t>>("nodes_nodeids", "for each node: its number in the tree")
      .Arg<std::vector<int64_t>>("nodes_featureids", "for each node: the column to compare")
      .Arg<std::vector<double>>("nodes_values", "for each node: the threshold")
      .Arg<Tensor>("nodes_values_as_tensor", kDouble)
      .Arg<std::vector<std::string>>(
          "nodes_modes",
          "for each node: BRANCH_LEQ (the column is at most the threshold), BRANCH_LT, BRANCH_GTE, "
          "BRANCH_GT, BRANCH_EQ, BRANCH_NEQ or LEAF")
      .Arg<std::vector<int64_t>>("nodes_truenodeids", "for each node: the next if it is true")
      .Arg<std::vector<int64_t>>("nodes_falsenodeids", "for each node: the next if it is false")
      .Arg<std::vector<int64_t>>("nodes_missing_value_tracks_true",
                                 "for each node: 1 if NaN counts as true; 0 by default")
      .Arg<std::vector<double>>("nodes_hitrates", "not used")
      .Arg<Tensor>("nodes_hitrates_as_tensor", "not used")
      .Arg<std::vector<double>>("base_values", "added to the scores: one number, or one for each")
      .Arg<Tensor>("base_values_as_tensor", kDouble)
      .Arg("post_transform", "how scores are transformed", kPostTransforms);
}

}  // namespace detail

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", TreeEnsembleClassifier, kNone, TreeEnsembleClassifierOp)
    .Doc(
        "The class of each row by the votes of decision trees, and the scores of all classes. The "
        "scores are the sums of the weights of the leaves that the row reaches. If there are two "
        "classes and all weights are for the first, their sum p is the score of the second: the "
        "scores are 1 - p and p if no weight is negative, and -p and p otherwise.")
    .NumOutputs(2)
    .FillUsing(detail::DeclareTreeNodes)
    .Output(0, "Y", "the label of the class of each row, of shape [N]",
            {DType::kInt64, DType::kString})
    .Output(1, "Z", "the scores, of shape [N, number of classes]", {DType::kFloat32})
    .Arg<std::vector<int64_t>>("class_treeids", "for each weight: the tree of its leaf")
    .Arg<std::vector<int64_t>>("class_nodeids", "for each weight: the node of its leaf")
    .Arg<std::vector<int64_t>>("class_ids", "for each weight: the position of the class")
    .Arg<std::vector<double>>("class_weights", "the weights")
    .Arg<Tensor>("class_weights_as_tensor", "in place of 'class_weights', float64")
    .Arg<std::vector<int64_t>>("classlabels_int64s", "the labels of the classes")
    .Arg<std::vector<std::string>>("classlabels_strings", "the labels as strings")
    .Infer([](InferenceContext& c) { detail::InferClassifier(c, "classlabels_int64s"); });

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", TreeEnsembleRegressor, kNone, TreeEnsembleRegressorOp)
    .Doc(
        "The values of each row by decision trees: for each target the sum, mean, least or "
        "greatest "
        "of the weights of the leaves that the row reaches.")
    .FillUsing(detail::DeclareTreeNodes)
    .Output(0, "Y", "the values, of shape [N, n_targets]", {DType::kFloat32})
    .Arg<int64_t>("n_targets", "the number of values", 1)
    .Arg<std::vector<int64_t>>("target_treeids", "for each weight: the tree of its leaf")
    .Arg<std::vector<int64_t>>("target_nodeids", "for each weight: the node of its leaf")
    .Arg<std::vector<int64_t>>("target_ids", "for each weight: its target")
    .Arg<std::vector<double>>("target_weights", "the weights")
    .Arg<Tensor>("target_weights_as_tensor", "in place of 'target_weights', float64")
    .Arg("aggregate_function", "how the weights of a target are joined",
         {"SUM", "AVERAGE", "MIN", "MAX"})
    .Infer(&detail::InferTreeRegressor);

OPKIT_DOMAIN_OPERATOR("ai.onnx.ml", TreeEnsemble, kNone, TreeEnsembleOp)
    .Doc(
        "The values of each row by decision trees, as TreeEnsembleRegressor. The leaves have lists "
        "of their own, and a node may test membership of a set.")
    .Input(0, "X", "rows, of shape [N, F] or [F]; NaN is a missing value",
           {DType::kFloat32, DType::kFloat64, DType::kFloat16})
    .Output(0, "Y", "the values, of shape [N, n_targets] and the dtype of X")
    .Arg<int64_t>("n_targets", "the number of values", 1)
    .Arg<int64_t>("aggregate_function", "0: mean, 1: sum, 2: least, 3: greatest", 1)
    .Arg<int64_t>("post_transform",
                  "0: none, 1: softmax, 2: logistic, 3: softmax of the values that are not 0, 4: "
                  "probit",
                  0)
    .RequiredArg<std::vector<int64_t>>("tree_roots", "for each tree: the node that it begins with")
    .RequiredArg<std::vector<int64_t>>("nodes_featureids", "for each node: the column to compare")
    .RequiredArg<Tensor>("nodes_splits", "for each node: the threshold")
    .RequiredArg<Tensor>("nodes_modes",
                         "for each node, uint8: 0: the column is at most the threshold, 1: less, "
                         "2: at least, 3: more, 4: equal, 5: not equal, 6: in the node's set")
    .RequiredArg<std::vector<int64_t>>("nodes_truenodeids",
                                       "for each node: the next node or leaf if it is true")
    .RequiredArg<std::vector<int64_t>>("nodes_falsenodeids",
                                       "for each node: the next node or leaf if it is false")
    .RequiredArg<std::vector<int64_t>>("nodes_trueleafs", "1 if the next if true is a leaf")
    .RequiredArg<std::vector<int64_t>>("nodes_falseleafs", "1 if the next if false is a leaf")
    .Arg<std::vector<int64_t>>("nodes_missing_value_tracks_true",
                               "for each node: 1 if NaN counts as true; 0 by default")
    .Arg<Tensor>("nodes_hitrates", "not used")
    .Arg<Tensor>("membership_values", "the sets, in the order of their nodes, a NaN between two")
    .RequiredArg<std::vector<int64_t>>("leaf_targetids", "for each leaf: its target")
    .RequiredArg<Tensor>("leaf_weights", "for each leaf: the weight")
    .Infer(&detail::InferTreeEnsemble);

}}  // namespace opkit

#endif  // OPKIT_OPS_ML_TREE_ENSEMBLE_HPP_
