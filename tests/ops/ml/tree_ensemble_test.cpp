// TreeEnsembleClassifier, TreeEnsembleRegressor and TreeEnsemble.
#include "opkit/ops/ml/tree_ensemble.hpp"

#include <random>

#include "../data_movement.hpp"

namespace tree_ensemble_test {
using namespace opkit_tests;

namespace {

const std::string kClassifier = "ai.onnx.ml.TreeEnsembleClassifier";
const std::string kRegressor = "ai.onnx.ml.TreeEnsembleRegressor";
const std::string kEnsemble = "ai.onnx.ml.TreeEnsemble";
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using Strings = std::vector<std::string>;

static_assert(sizeof(detail::TreeNodes<float>::Node) == 12);
static_assert(sizeof(detail::TreeNodes<double>::Node) == 16);

bool Near(const Floats& found, const Floats& expected) {
  bool near = found.size() == expected.size();
  for (size_t i = 0; near && i < found.size(); ++i) near = std::abs(found[i] - expected[i]) < 1e-6f;
  return near;
}

// One tree: column 0 compared with `threshold`, and a leaf for each outcome, node 1 if it is true.
Arguments Stump(const std::string& mode, float threshold) {
  return {{"nodes_treeids", Ints{0, 0, 0}},
          {"nodes_nodeids", Ints{0, 1, 2}},
          {"nodes_featureids", Ints{0, 0, 0}},
          {"nodes_values", Floats{threshold, 0, 0}},
          {"nodes_modes", Strings{mode, "LEAF", "LEAF"}},
          {"nodes_truenodeids", Ints{1, 0, 0}},
          {"nodes_falsenodeids", Ints{2, 0, 0}}};
}
// With weights: {leaf, class or target, weight}.
struct Weight {
  int64_t leaf, target;
  float weight;
};
Arguments With(Arguments args, const std::string& prefix, const std::vector<Weight>& weights) {
  Ints trees, leaves, targets;
  Floats values;
  for (const Weight& weight : weights) {
    trees.push_back(0);
    leaves.push_back(weight.leaf);
    targets.push_back(weight.target);
    values.push_back(weight.weight);
  }
  args.Set(prefix + "_treeids", trees);
  args.Set(prefix + "_nodeids", leaves);
  args.Set(prefix + "_ids", targets);
  args.Set(prefix + "_weights", values);
  return args;
}
// 1 if the comparison of a stump is true.
Floats Outcomes(const std::string& mode, float threshold, const Floats& column,
                bool nan_is_true = false) {
  Arguments args = With(Stump(mode, threshold), "target", {{1, 0, 1}, {2, 0, 0}});
  if (nan_is_true) args.Set("nodes_missing_value_tracks_true", Ints{1, 0, 0});
  const auto rows = static_cast<int64_t>(column.size());
  return FloatsOf(Invoke(kRegressor, {Tensor::From<float>({rows, 1}, column)}, args)[0]);
}

TEST_CASE("each mode compares as its name says, at the threshold and with NaN and infinities") {
  const Floats x = {-kInf, -1, 0, 1, kInf, kNan};
  CHECK(Outcomes("BRANCH_LEQ", 0, x) == Floats{1, 1, 1, 0, 0, 0});
  CHECK(Outcomes("BRANCH_LT", 0, x) == Floats{1, 1, 0, 0, 0, 0});
  CHECK(Outcomes("BRANCH_GTE", 0, x) == Floats{0, 0, 1, 1, 1, 0});
  CHECK(Outcomes("BRANCH_GT", 0, x) == Floats{0, 0, 0, 1, 1, 0});
  CHECK(Outcomes("BRANCH_EQ", 0, x) == Floats{0, 0, 1, 0, 0, 0});
  CHECK(Outcomes("BRANCH_NEQ", 0, x) == Floats{1, 1, 0, 1, 1, 1});
  for (const char* mode : {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ"}) {
    CAPTURE(mode);
    const Floats with_nan = Outcomes(mode, 0, x, true), without = Outcomes(mode, 0, x);
    CHECK(with_nan.back() == 1);
    CHECK(Floats(with_nan.begin(), with_nan.end() - 1) ==
          Floats(without.begin(), without.end() - 1));
    CHECK(Outcomes(mode, kNan, x) == Floats{0, 0, 0, 0, 0, 0});
    CHECK(Outcomes(mode, kNan, x, true) == Floats{0, 0, 0, 0, 0, 1});
  }
  CHECK(Outcomes("BRANCH_LT", -kInf, x) == Floats{0, 0, 0, 0, 0, 0});
  CHECK(Outcomes("BRANCH_GTE", -kInf, x) == Floats{1, 1, 1, 1, 1, 0});
  CHECK(Outcomes("BRANCH_LT", -kInf, x, true) == Floats{0, 0, 0, 0, 0, 1});
  CHECK(Outcomes("BRANCH_LT", kInf, x) == Floats{1, 1, 1, 1, 0, 0});
  CHECK(Outcomes("BRANCH_GT", kInf, x) == Floats{0, 0, 0, 0, 0, 0});
}

TEST_CASE("threads that take denormal numbers as zeros compare zeros right, too") {
  if (detail::kFlushDenormalBits == 0) return;
  const Floats x = {-1, -0.f, 0, 1, kNan};
  const std::vector<double> wide(x.begin(), x.end());
  for (const char* mode : {"BRANCH_LT", "BRANCH_GTE"}) {
    CAPTURE(mode);
    for (const bool nan_is_true : {false, true}) {
      const Floats expected = Outcomes(mode, 0, x, nan_is_true);
      const detail::DenormalScope flushing(true);
      CHECK(Outcomes(mode, 0, x, nan_is_true) == expected);
      CHECK(Outcomes(mode, -0.f, x, nan_is_true) == expected);
    }
    const detail::DenormalScope flushing(true);
    const Arguments args = With(Stump(mode, 0), "target", {{1, 0, 1}, {2, 0, 0}});
    const bool below = std::string_view(mode) == "BRANCH_LT";
    CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<double>({5, 1}, wide)}, args)[0]) ==
          (below ? Floats{1, 0, 0, 0, 0} : Floats{0, 1, 1, 1, 0}));
    CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<int64_t>({3, 1}, {-1, 0, 1})}, args)[0]) ==
          (below ? Floats{1, 0, 0} : Floats{0, 1, 1}));
  }
}

// A random ensemble in the older form, and its value for a row by a plain walk.
struct RandomTrees {
  std::mt19937 random;
  Ints trees, ids, features, yes, no, missing, weight_trees, weight_ids, targets;
  Floats values, weights;
  Strings modes;
  std::vector<size_t> roots;
  int num_features, num_targets, num_modes;

  RandomTrees(unsigned seed, int num_trees, int depth, int features_, int targets_, int modes_)
      : random(seed), num_features(features_), num_targets(targets_), num_modes(modes_) {
    for (int tree = 0; tree < num_trees; ++tree) {
      roots.push_back(ids.size());
      int64_t next = 0;
      Grow(tree, &next, depth);
    }
  }
  int Below(int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); }
  int64_t Grow(int tree, int64_t* next, int depth) {
    const int64_t id = (*next)++;
    const size_t at = ids.size();
    trees.push_back(tree);
    ids.push_back(id);
    features.push_back(Below(num_features));
    values.push_back(static_cast<float>(Below(9) - 4));
    missing.push_back(Below(2));
    yes.push_back(0);
    no.push_back(0);
    static const char* const kModes[] = {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE",
                                         "BRANCH_GT",  "BRANCH_EQ", "BRANCH_NEQ"};
    const bool leaf = depth == 0 || Below(8) == 0;
    modes.emplace_back(leaf ? "LEAF" : kModes[Below(num_modes)]);
    if (leaf) {
      for (int vote = num_targets == 1 ? 1 : Below(3); vote > 0; --vote) {
        weight_trees.push_back(tree);
        weight_ids.push_back(id);
        targets.push_back(Below(num_targets));
        weights.push_back(static_cast<float>(Below(17) - 8) / 4);
      }
      return id;
    }
    yes[at] = Grow(tree, next, depth - 1);
    no[at] = Grow(tree, next, depth - 1);
    return id;
  }
  Arguments Args(const std::string& aggregate) const {
    return {{"nodes_treeids", trees},         {"nodes_nodeids", ids},
            {"nodes_featureids", features},   {"nodes_values", values},
            {"nodes_modes", modes},           {"nodes_truenodeids", yes},
            {"nodes_falsenodeids", no},       {"nodes_missing_value_tracks_true", missing},
            {"target_treeids", weight_trees}, {"target_nodeids", weight_ids},
            {"target_ids", targets},          {"target_weights", weights},
            {"n_targets", num_targets},       {"aggregate_function", aggregate}};
  }
  Floats Expected(const float* row, const std::string& aggregate) const {
    std::vector<Floats> votes(static_cast<size_t>(num_targets));
    for (const size_t root : roots) {
      size_t at = root;
      while (modes[at] != "LEAF") {
        const float v = row[features[at]], t = values[at];
        const std::string& mode = modes[at];
        bool is_true = mode == "BRANCH_LEQ"   ? v <= t
                       : mode == "BRANCH_LT"  ? v < t
                       : mode == "BRANCH_GTE" ? v >= t
                       : mode == "BRANCH_GT"  ? v > t
                       : mode == "BRANCH_EQ"  ? v == t
                                              : v != t;
        if (v != v && missing[at]) is_true = true;
        at = root + static_cast<size_t>(is_true ? yes[at] : no[at]);
      }
      for (size_t i = 0; i < weights.size(); ++i)
        if (weight_trees[i] == trees[at] && weight_ids[i] == ids[at])
          votes[static_cast<size_t>(targets[i])].push_back(weights[i]);
    }
    Floats out;
    for (const Floats& all : votes) {
      float value = 0;
      for (const float vote : all) value += vote;
      if (aggregate == "AVERAGE") value /= static_cast<float>(roots.size());
      if (!all.empty() && aggregate == "MIN") value = *std::min_element(all.begin(), all.end());
      if (!all.empty() && aggregate == "MAX") value = *std::max_element(all.begin(), all.end());
      out.push_back(value);
    }
    return out;
  }
};

TEST_CASE("ensembles agree with a plain walk, for few rows and many") {
  for (unsigned seed = 0; seed < 24; ++seed) {
    CAPTURE(seed);
    const int number = static_cast<int>(seed);
    // Half of the ensembles have no node of BRANCH_EQ or BRANCH_NEQ, and a third of the rows no
    // NaN.
    RandomTrees trees(seed, 1 + number * 3 % 40, 1 + number % 6 + (number < 3 ? 6 : 0), 5,
                      1 + number % 3, number % 2 == 0 ? 4 : 6);
    const char* const kAggregates[] = {"SUM", "AVERAGE", "MIN", "MAX"};
    const std::string aggregate = kAggregates[seed / 3 % 4];
    for (const int64_t rows : {1, 2, 9, 150}) {
      Floats x(static_cast<size_t>(rows * 5)), expected;
      for (size_t i = 0; i < x.size(); ++i)
        x[i] =
            i / 5 % 3 != 0 && trees.Below(5) == 0 ? kNan : static_cast<float>(trees.Below(11) - 5);
      for (int64_t row = 0; row < rows; ++row)
        for (const float v : trees.Expected(x.data() + row * 5, aggregate)) expected.push_back(v);
      const Tensor in = Tensor::From<float>({rows, 5}, x);
      CHECK(FloatsOf(Invoke(kRegressor, {in}, trees.Args(aggregate))[0]) == expected);
      const Tensor wide = Invoke("Cast", {in}, {{"to", 11}})[0];
      CHECK(FloatsOf(Invoke(kRegressor, {wide}, trees.Args(aggregate))[0]) == expected);
    }
  }
}

TEST_CASE("base values are added after the aggregate, and integers are rows, too") {
  Arguments args = With(Stump("BRANCH_LEQ", 1), "target", {{1, 0, 2}, {1, 1, 3}, {2, 1, 5}});
  args.Set("n_targets", 2);
  args.Set("base_values", Floats{10, 20});
  for (const char* aggregate : {"SUM", "AVERAGE", "MIN", "MAX"}) {
    args.Set("aggregate_function", aggregate);
    CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<int64_t>({2, 1}, {1, 2})}, args)[0]) ==
          Floats{12, 23, 10, 25});
    CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<int32_t>({1}, {2})}, args)[0]) ==
          Floats{10, 25});
  }
  args.Set("base_values", Floats{10});
  CHECK(FloatsOf(Invoke(kRegressor, {Tensor::From<float>({1, 1}, {2})}, args)[0]) ==
        Floats{10, 15});
  CHECK(Invoke(kRegressor, {Tensor::From<float>({0, 1}, {})}, args)[0].shape() == Shape{0, 2});
}

TEST_CASE("thresholds of float64 are compared in float64") {
  Arguments args = With(Stump("BRANCH_LEQ", 0), "target", {{1, 0, 1}, {2, 0, 2}});
  args.Remove("nodes_values");
  args.Set("nodes_values_as_tensor", Tensor::From<double>({3}, {1 + 1e-12, 0, 0}));
  const auto value = [&](double x) {
    return FloatsOf(Invoke(kRegressor, {Tensor::From<double>({1, 1}, {x})}, args)[0]);
  };
  CHECK(value(1 + 1e-12) == Floats{1});
  CHECK(value(1 + 2e-12) == Floats{2});
}

TEST_CASE("scores of regressors are transformed") {
  Arguments args = With(Stump("BRANCH_LEQ", 0), "target", {{1, 0, 1}, {1, 2, 2}});
  args.Set("n_targets", 3);
  const auto values = [&](const char* transform) {
    args.Set("post_transform", transform);
    return FloatsOf(Invoke(kRegressor, {Tensor::From<float>({1, 1}, {0})}, args)[0]);
  };
  CHECK(Near(values("SOFTMAX"), {0.24472848f, 0.09003057f, 0.66524094f}));
  CHECK(Near(values("SOFTMAX_ZERO"), {0.26894143f, 0, 0.7310586f}));
  CHECK(Near(values("LOGISTIC"), {0.7310586f, 0.5f, 0.880797f}));
}

struct Classes {
  Ints labels;
  Floats scores;
  bool operator==(const Classes&) const = default;
};
Classes Classify(Arguments args, const Ints& labels, const char* transform = "NONE",
                 const Floats& base = {}) {
  args.Set("classlabels_int64s", labels);
  args.Set("post_transform", transform);
  if (!base.empty()) args.Set("base_values", base);
  const auto out = Invoke(kClassifier, {Tensor::From<float>({2, 1}, {-1, 1})}, args);
  return {out[0].ToVector<int64_t>(), FloatsOf(out[1])};
}

TEST_CASE("a classifier returns the class with the highest score") {
  const Arguments args =
      With(Stump("BRANCH_LEQ", 0), "class", {{1, 0, .25f}, {1, 2, .75f}, {2, 1, .5f}});
  CHECK(Classify(args, {10, 20, 30}) == Classes{{30, 20}, {.25f, 0, .75f, 0, .5f, 0}});
  CHECK(Classify(args, {10, 20, 30}, "NONE", {.25f, .5f, 1}) ==
        Classes{{30, 20}, {.5f, .5f, 1.75f, .25f, 1, 1}});
  // A class without a vote is no winner with SOFTMAX_ZERO, even if all votes are negative.
  const Arguments negative =
      With(Stump("BRANCH_LEQ", 0), "class", {{1, 0, -2}, {1, 2, -1}, {2, 1, .5f}});
  CHECK(Classify(negative, {10, 20, 30}, "SOFTMAX_ZERO").labels == Ints{30, 20});
  CHECK(Classify(negative, {10, 20, 30}, "SOFTMAX").labels == Ints{20, 20});
  const Arguments two = With(Stump("BRANCH_LEQ", 0), "class",
                             {{1, 0, .25f}, {1, 1, .75f}, {2, 0, .75f}, {2, 1, .25f}});
  CHECK(Classify(two, {10, 20}) == Classes{{20, 10}, {.25f, .75f, .75f, .25f}});
}

TEST_CASE("a classifier of two classes with weights for one gives its complement") {
  const Arguments positive = With(Stump("BRANCH_LEQ", 0), "class", {{1, 0, .25f}, {2, 0, .75f}});
  CHECK(Classify(positive, {10, 20}) == Classes{{10, 20}, {.75f, .25f, .25f, .75f}});
  CHECK(Classify(positive, {10, 20}, "SOFTMAX") == Classify(positive, {10, 20}));
  CHECK(Classify(positive, {10, 20}, "NONE", {.5f}) ==
        Classes{{20, 20}, {.25f, .75f, -.25f, 1.25f}});
  const Classes logistic = Classify(positive, {10, 20}, "LOGISTIC");
  CHECK(logistic.labels == Ints{10, 20});
  CHECK(Near(logistic.scores, {0.4378235f, 0.5621765f, 0.3208213f, 0.6791787f}));
  const Arguments both_signs = With(Stump("BRANCH_LEQ", 0), "class", {{1, 0, -.5f}, {2, 0, .25f}});
  CHECK(Classify(both_signs, {10, 20}) == Classes{{10, 20}, {.5f, -.5f, -.25f, .25f}});
  const Arguments second = With(Stump("BRANCH_LEQ", 0), "class", {{1, 1, .25f}, {2, 1, .75f}});
  CHECK(Classify(second, {10, 20}) == Classes{{10, 20}, {0, .25f, 0, .75f}});
}

TEST_CASE("labels may be strings, but not beside integers") {
  Arguments args = With(Stump("BRANCH_LEQ", 0), "class", {{1, 0, .25f}, {2, 1, .75f}});
  args.Set("classlabels_strings", Strings{"cat", "dog"});
  CHECK(Inferred(kClassifier, {{2, 1}}, args, 2) == "string[2] float32[2, 2]");
  CHECK(Invoke(kClassifier, {Tensor::From<float>({2, 1}, {-1, 1})}, args)[0]
            .ToVector<std::string>() == Strings{"cat", "dog"});
  OperatorDef def(kClassifier, {"x"}, {"", "scores"}, args);
  const TensorInfo x(DType::kFloat32, {2, 1});
  CHECK(ToString(OpRegistry::Global().GetSchema(kClassifier).InferOutputs(def, {x})[1]) ==
        "float32[2, 2]");
  args.Set("classlabels_int64s", Ints{1, 2});
  CHECK(Contains(
      Refused(kClassifier, {{2, 1}}, args, 2),
      "has 2 labels in 'classlabels_int64s' and 2 in 'classlabels_strings', expected labels "
      "in one of them"));
  args.Remove("classlabels_strings");
  CHECK(Inferred(kClassifier, {{Sym("N"), 1}}, args, 2) == "int64[N] float32[N, 2]");
}

// Two trees: the first tests membership of {1, 3} and then of {5}, the second is "x > 2".
Arguments Sets(DType dtype) {
  const auto numbers = [&](const Floats& values) {
    return Invoke("Cast", {Vector<float>(values)}, {{"to", dtype == DType::kFloat64 ? 11 : 1}})[0];
  };
  return {{"n_targets", 2},
          {"tree_roots", Ints{0, 2}},
          {"nodes_modes", Vector<uint8_t>({6, 6, 3})},
          {"nodes_featureids", Ints{0, 0, 0}},
          {"nodes_splits", numbers({0, 0, 2})},
          {"nodes_truenodeids", Ints{0, 1, 2}},
          {"nodes_trueleafs", Ints{1, 1, 1}},
          {"nodes_falsenodeids", Ints{1, 2, 3}},
          {"nodes_falseleafs", Ints{0, 1, 1}},
          {"membership_values", numbers({3, 1, kNan, 5, kNan})},
          {"leaf_targetids", Ints{0, 0, 1, 1}},
          {"leaf_weights", numbers({10, 20, 30, 40})}};
}

TEST_CASE("TreeEnsemble has leaves of their own, and sets") {
  const Tensor x = Tensor::From<float>({4, 1}, {1, 3, 5, kNan});
  const Floats expected = {10, 40, 10, 30, 20, 30, 0, 70};
  CHECK(FloatsOf(Invoke(kEnsemble, {x}, Sets(DType::kFloat32))[0]) == expected);
  const Tensor wide =
      Invoke(kEnsemble, {Invoke("Cast", {x}, {{"to", 11}})[0]}, Sets(DType::kFloat64))[0];
  CHECK(wide.dtype() == DType::kFloat64);
  CHECK(FloatsOf(Invoke("Cast", {wide}, {{"to", 1}})[0]) == expected);
  Arguments args = Sets(DType::kFloat32);
  args.Set("membership_values", Vector<float>({3, 1}));
  CHECK(Contains(ErrorOf([&] { Invoke(kEnsemble, {x}, args); }).message(),
                 "'membership_values' has 1 sets, expected one for each of the 2 nodes"));
}

std::string WhyNot(const std::string& name, const Attribute& value) {
  Arguments args = With(Stump("BRANCH_LEQ", 0), "target", {{1, 0, 1}, {2, 0, 2}});
  args.Set(name, value);
  return ErrorOf([&] { Invoke(kRegressor, {Tensor::From<float>({1, 1}, {0})}, args); }).message();
}

TEST_CASE("attributes that are no trees are refused") {
  CHECK(Contains(WhyNot("nodes_modes", Strings{"BRANCH_LEQ", "LEAF", "BRANCH"}), "'BRANCH'"));
  CHECK(Contains(WhyNot("nodes_values", Floats{1}), "'nodes_values' has 1 elements, expected 3"));
  CHECK(Contains(WhyNot("nodes_nodeids", Ints{0, 1, 1}), "tree 0 has node 1 twice"));
  CHECK(Contains(WhyNot("nodes_truenodeids", Ints{7, 0, 0}), "tree 0 has no node 7"));
  CHECK(Contains(WhyNot("nodes_truenodeids", Ints{2, 0, 0}), "a node is in two places"));
  CHECK(Contains(WhyNot("nodes_truenodeids", Ints{0, 0, 0}), "cannot be reached"));
  CHECK(Contains(WhyNot("nodes_featureids", Ints{-1, 0, 0}), "the feature -1"));
  CHECK(Contains(WhyNot("nodes_featureids", Ints{1, 0, 0}), "the trees read column 1"));
  CHECK(Contains(WhyNot("target_nodeids", Ints{0, 1}), "has a weight, but is no leaf"));
  CHECK(Contains(WhyNot("target_ids", Ints{0, 1}), "the class or target of a weight 1"));
  CHECK(Contains(WhyNot("base_values", Floats{0, 1}), "'base_values' has 2 elements"));
  CHECK(Contains(WhyNot("n_targets", 0), "the number of targets is 0"));
}

TEST_CASE("the operators keep the promises of their schemas") {
  const Tensor x = Tensor::From<float>({3, 1}, {-1, 0, 1});
  CheckNode(OperatorDef(kRegressor, {"x"}, {"y"},
                        With(Stump("BRANCH_LEQ", 0), "target", {{1, 0, 1}, {2, 0, 2}})),
            {x});
  Arguments args = With(Stump("BRANCH_LEQ", 0), "class", {{1, 0, 1}, {2, 1, 2}});
  args.Set("classlabels_int64s", Ints{0, 1});
  CheckNode(OperatorDef(kClassifier, {"x"}, {"labels", "scores"}, args), {x});
  CheckNode(OperatorDef(kEnsemble, {"x"}, {"y"}, Sets(DType::kFloat32)), {x});
}

}  // namespace
}  // namespace tree_ensemble_test
