// The rules for the attentions of com.microsoft; microsoft_rules.hpp has the other rules.
#ifndef OPKIT_INTEROP_ONNX_MICROSOFT_ATTENTION_HPP_
#define OPKIT_INTEROP_ONNX_MICROSOFT_ATTENTION_HPP_

#include <cmath>
#include <limits>

#include "opkit/interop/onnx/expansion.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The rules, each named after its operator.
class OnnxAttentionRules {
 public:
  static void Attention(OnnxExpansion& e) {
    if (e.Has(6))
      Throw(ErrorCode::kUnsupported, "it writes to its past, which opkit's values do not allow");
    const std::string x = e.Plus(e.Node("MatMul", {e.In(0), e.In(1)}), 2);
    Attend(e, x, {.mask = e.Optional(3), .past = e.Optional(4), .bias = e.Optional(5)});
  }
  static void QAttention(OnnxExpansion& e) {
    const std::string x =
        e.Node("com.microsoft.MatMulIntegerToFloat",
               {e.In(0), e.In(1), e.In(3), e.In(4), e.Optional(6), e.Optional(7), e.In(2)});
    Attend(e, x, {.mask = e.Optional(5), .past = e.Optional(8), .bias = ""});
  }

  // Attention of queries, keys and values [batch, count, heads * size]. A mask has a number for
  // each key [batch, keys].
  static void MultiHeadAttention(OnnxExpansion& e) {
    const auto heads = e.args().Get<int64_t>("num_heads", 0);
    const bool is_causal = e.args().Get<int64_t>("unidirectional", 0) != 0;
    std::vector<std::string> parts{e.In(0), e.Optional(1), e.Optional(2)};
    for (const std::string& part : parts) {
      const SymbolicShape shape =
          part.empty() ? SymbolicShape() : e.scope().ProvenInfoOf(part).shape;
      if (!shape.has_rank() || shape.rank() != 3)
        Throw(ErrorCode::kUnsupported,
              "its query, key and value must be three inputs that are known to have rank 3");
    }
    for (size_t i = 8; i < 10; ++i)
      if (e.Has(i)) Throw(ErrorCode::kUnsupported, "it has input ", i);
    if (is_causal && e.Has(6))
      Throw(ErrorCode::kUnsupported, "it has a past, and unidirectional is not 0");
    if (e.Has(3)) {
      const Dim all = Last(e.scope().ProvenInfoOf(e.In(3)).shape);
      const Dim of_query = Last(e.scope().ProvenInfoOf(parts[0]).shape);
      if (!all.is_known() || !of_query.is_known() || all.value() < 2 * of_query.value())
        Throw(ErrorCode::kUnsupported, "the sizes of its query and bias must be known");
      const int64_t n = of_query.value();
      std::vector<std::string> biases;
      for (const char* what : {"q", "k", "v"})
        biases.push_back(e.scope().FreshName(e.In(3) + "/" + what));
      e.scope().AddNode(OperatorDef("Split", {e.In(3), e.Ints({n, n, all.value() - 2 * n})}, biases,
                                    {{"axis", 0}}));
      for (size_t i = 0; i < 3; ++i) parts[i] = e.Node("Add", {parts[i], biases[i]});
    }
    std::string mask = e.Optional(5);
    if (e.Has(4)) {
      const SymbolicShape shape = e.scope().InfoOf(e.In(4)).shape;
      if (!shape.has_rank() || shape.rank() != 2)
        Throw(ErrorCode::kUnsupported, "its mask is ", ToString(shape), ", expected [batch, keys]");
      const auto low = e.args().Get<float>("mask_filter_value", -10000.f);
      const std::string is_set = e.Node("Cast", {e.In(4)}, {{"to", OnnxNumberOf(DType::kBool)}});
      const std::string added = Filtered(e, parts[0], e.Unsqueezed(is_set, {1, 2}), low);
      mask = mask.empty() ? added : e.Node("Add", {mask, added});
    }
    Arguments args{
        {"q_num_heads", heads}, {"kv_num_heads", heads}, {"is_causal", int64_t{is_causal}}};
    if (const auto scale = e.args().Get<float>("scale", 0.f); scale != 0) args.Set("scale", scale);
    std::vector<std::string> outputs{e.Out(0)};
    if (!e.Out(1).empty() || !e.Out(2).empty()) outputs = {e.Out(0), e.Out(1), e.Out(2)};
    e.Last("Attention", {parts[0], parts[1], parts[2], mask, e.Optional(6), e.Optional(7)},
           std::move(args), std::move(outputs));
  }

  // Causal attention whose keys and values go to a cache [batch, heads, rows, size] of past steps.
  // The new steps of element b begin at row seqlens_k[b] + 1 - steps of the cache, or at row 0 if
  // that is negative: then some of them are padding.
  static void GroupQueryAttention(OnnxExpansion& e) {
    RefuseInGroupQueryAttention(e);
    const auto heads = e.args().Get<int64_t>("num_heads", 0);
    const auto kv_heads = e.args().Get<int64_t>("kv_num_heads", 0);
    const auto window = e.args().Get<int64_t>("local_window_size", -1);
    if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0)
      Throw(ErrorCode::kInvalidArgument, "its num_heads is ", heads, " and its kv_num_heads is ",
            kv_heads, ", expected a multiple of the number of key heads");
    std::vector<std::string> parts = HeadsOf(e, heads, kv_heads);
    const std::string steps = e.Extent(parts[0], 2), zero = e.Int(0), one = e.Int(1);
    const std::string last = e.Node("Reshape", {AsInt64(e, e.In(5)), e.Ints({-1})});
    const std::string first =
        e.Node("Max", {e.Node("Sub", {last, e.Node("Sub", {steps, one})}), zero});
    const std::string places =
        e.Node("Add", {e.Unsqueezed(first, {1}), e.Node("Range", {zero, steps, one})});
    if (e.args().Get<int64_t>("do_rotary", 0) != 0) {
      Arguments args{{"interleaved", e.args().Get<int64_t>("rotary_interleaved", 0)}};
      SetRotated(e, e.In(7), args);
      for (size_t i = 0; i < 2; ++i)
        parts[i] = e.Node("RotaryEmbedding", {parts[i], e.In(7), e.In(8), places}, args);
    }
    for (size_t i = 1; i < 3; ++i) {
      if (e.Has(3)) {  // a cache without room for total_sequence_length rows becomes longer
        const std::string total = AsInt64(e, e.Node("Reshape", {e.In(6), e.Ints({})}));
        const std::string missing =
            e.Node("Max", {e.Node("Sub", {total, e.Extent(e.In(i + 2), 2)}), zero});
        const std::string cache = Padded(e, e.In(i + 2), zero, missing, 2);
        parts[i] = e.Node("TensorScatter", {cache, parts[i], first});
      }
      if (!e.Out(i).empty()) e.Node("Identity", {parts[i]}, {}, e.Out(i));
    }
    Arguments args{{"softcap", e.args().Get<float>("softcap", 0.f)}};
    if (const auto scale = e.args().Get<float>("scale", 0.f); scale != 0) args.Set("scale", scale);
    const bool has_sink = e.Has(11) || e.args().Get<int64_t>("smooth_softmax", -1) > 0;
    std::string mask;
    if (!e.Has(3) && window < 0 && !e.Has(10) && !has_sink)
      args.Set("is_causal", 1);
    else
      mask = MaskOfCache(e, parts[1], places, window, e.Has(10) || has_sink);
    if (has_sink) {  // one more key, whose score is that of the sink and whose value is 0
      if (e.Has(11)) {
        const std::string sinks = e.Node("Reshape", {e.In(11), e.Ints({1, -1, 1, 1})});
        mask = e.Node("Add", {Padded(e, mask, zero, one, 3),
                              Padded(e, sinks, e.Extent(parts[1], 2), zero, 3)});
      } else {
        mask = Padded(e, mask, zero, one, 3);
      }
      for (size_t i = 1; i < 3; ++i) parts[i] = Padded(e, parts[i], zero, one, 2);
    }
    const std::string out = e.Node("Attention", {parts[0], parts[1], parts[2], mask}, args);
    e.Last("Reshape", {e.Node("Transpose", {out}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       e.Ints({0, 0, -1})});
  }

  // ONNX's operator takes the caches before the positions, and a place for each step.
  static void RotaryEmbedding(OnnxExpansion& e) {
    if (e.args().Get<float>("scale", 1.f) != 1)
      Throw(ErrorCode::kUnsupported, "its scale is not 1");
    if (e.args().Get<int64_t>("is_packed_batching", 0) != 0)
      Throw(ErrorCode::kUnsupported, "its is_packed_batching is not 0");
    const SymbolicShape x = e.scope().ProvenInfoOf(e.In(0)).shape;
    const SymbolicShape places_shape = e.scope().ProvenInfoOf(e.In(1)).shape;
    const SymbolicShape cache = e.scope().ProvenInfoOf(e.In(2)).shape;
    if (!x.has_rank() || (x.rank() != 3 && x.rank() != 4) || !places_shape.has_rank())
      Throw(ErrorCode::kUnsupported,
            "its input must be known to have rank 3 or 4, and the rank of "
            "its position_ids must be known");
    auto heads = e.args().Get<int64_t>("num_heads", 0);
    const auto rotated = e.args().Get<int64_t>("rotary_embedding_dim", 0);
    if (x.rank() == 3 && heads == 0) {  // the whole of each head is rotated
      const Dim half = Last(cache), size = Last(x);
      if (!half.is_known() || !size.is_known() || half.value() < 1)
        Throw(ErrorCode::kUnsupported,
              "without num_heads, the sizes of its input and of cos_cache must be known");
      heads = size.value() / (2 * half.value());
    }
    std::string places = e.In(1);
    if (places_shape.rank() <= 1) {  // that of the first step
      if (places_shape.rank() == 1) {
        const Dim extent = places_shape[0];
        if (extent.is_known() && extent.value() != 1)
          Throw(ErrorCode::kInvalidArgument, "its position_ids of rank 1 have ", extent.value(),
                " elements, not 1");
        places = e.Node("Reshape", {places, e.Ints({})});  // fails for several elements
      }
      const std::string shape = e.Node("Shape", {e.In(0)});
      const std::string steps_axis = e.Ints({x.rank() == 4 ? 2 : 1});
      const std::string batch_and_steps = e.Node(
          "Concat", {e.Node("Gather", {shape, e.Ints({0})}), e.Node("Gather", {shape, steps_axis})},
          {{"axis", 0}});
      const std::string steps =
          e.Node("Range", {e.Int(0), e.Extent(e.In(0), x.rank() == 4 ? 2 : 1), e.Int(1)});
      places = e.Node("Expand", {e.Node("Add", {steps, places}), batch_and_steps});
    }
    Arguments args{{"interleaved", e.args().Get<int64_t>("interleaved", 0)},
                   {"rotary_embedding_dim", rotated}};
    if (x.rank() == 3) args.Set("num_heads", heads);
    e.Last("RotaryEmbedding", {e.In(0), e.In(2), e.In(3), places}, std::move(args));
  }

 private:
  static Dim Last(const SymbolicShape& shape) {
    return shape.has_rank() && shape.rank() > 0 ? shape[-1] : Dim();
  }
  // Throws kUnsupported for what GroupQueryAttention does not translate.
  static void RefuseInGroupQueryAttention(const OnnxExpansion& e) {
    const auto refuse = [&](const char* name, int64_t plain) {
      const auto given = e.args().Get<int64_t>(name, plain);
      if (given != plain)
        Throw(ErrorCode::kUnsupported, "its ", name, " is ", given, "; opkit has only ", plain);
    };
    refuse("causal", 1);
    refuse("qk_output", 0);
    refuse("sliding_window_cache", 0);
    for (const char* name : {"k_quant_type", "v_quant_type"})
      if (const auto type = e.args().Get<std::string>(name, "NONE"); type != "NONE")
        Throw(ErrorCode::kUnsupported, "its ", name, " is '", type, "'; opkit has only 'NONE'");
    constexpr std::pair<size_t, const char*> kRefused[] = {{9, "position_ids"},
                                                           {12, "k_scale"},
                                                           {13, "v_scale"},
                                                           {14, "q_norm_weight"},
                                                           {15, "k_norm_weight"}};
    for (const auto& [input, name] : kRefused)
      if (e.Has(input)) Throw(ErrorCode::kUnsupported, "it has input ", input, ", ", name);
    if (e.Has(3) != e.Has(4))
      Throw(ErrorCode::kInvalidArgument, "it needs both past_key and past_value, or neither");
  }
  static std::string AsInt64(OnnxExpansion& e, const std::string& value) {
    return e.Node("Cast", {value}, {{"to", OnnxNumberOf(DType::kInt64)}});
  }
  // Returns queries, keys and values [batch, heads, steps, size] of three inputs, or of one that
  // has them side by side.
  static std::vector<std::string> HeadsOf(OnnxExpansion& e, int64_t heads, int64_t kv_heads) {
    if (e.Has(1) != e.Has(2))
      Throw(ErrorCode::kInvalidArgument, "it needs both key and value, or neither");
    std::vector<std::string> parts;
    if (e.Has(1)) {
      for (size_t i = 0; i < 3; ++i)
        parts.push_back(
            e.Node("Reshape", {e.In(i), e.Ints({0, 0, i == 0 ? heads : kv_heads, -1})}));
    } else {
      const std::string all =
          e.Node("Reshape", {e.In(0), e.Ints({0, 0, heads + 2 * kv_heads, -1})});
      for (const char* what : {"q", "k", "v"})
        parts.push_back(e.scope().FreshName(e.In(0) + "/" + what));
      e.scope().AddNode(
          OperatorDef("Split", {all, e.Ints({heads, kv_heads, kv_heads})}, parts, {{"axis", 2}}));
    }
    for (std::string& part : parts)
      part = e.Node("Transpose", {part}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return parts;
  }
  // Returns the mask [batch, 1, queries, keys] of the keys that queries at these places see: those
  // up to their own place, or the last `window` of them if it is 0 or more. As numbers, the mask is
  // the bias of input 10, or 0, and -infinity.
  static std::string MaskOfCache(OnnxExpansion& e, const std::string& cache,
                                 const std::string& places, int64_t window, bool as_numbers) {
    const std::string zero = e.Int(0), count = e.Extent(cache, 2);
    const std::string keys = e.Node("Range", {zero, count, e.Int(1)});
    const std::string queries = e.Unsqueezed(places, {1, 3});
    std::string mask = e.Node("LessOrEqual", {keys, queries});
    if (window >= 0) {
      const std::string before = e.Node("Sub", {queries, e.Int(window)});
      mask = e.Node("And", {mask, e.Node("Greater", {keys, before})});
    }
    if (!as_numbers) return mask;
    std::string bias = e.Number(0, e.In(0));
    if (e.Has(10))
      bias = Padded(e, e.In(10), zero, e.Node("Sub", {count, e.Extent(e.In(10), 3)}), 3);
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    return e.Node("Where", {mask, bias, e.Number(kNever, e.In(0))});
  }
  // Returns a value with zeros before and behind it along an axis, as many as two scalars say.
  static std::string Padded(OnnxExpansion& e, const std::string& value, const std::string& before,
                            const std::string& behind, int64_t axis) {
    const std::string pads =
        e.Node("Concat", {e.Unsqueezed(before, {0}), e.Unsqueezed(behind, {0})}, {{"axis", 0}});
    return e.Node("Pad", {value, pads, "", e.Ints({axis})});
  }
  // Sets how many elements of a head the angles of a cache rotate, if that is known.
  static void SetRotated(OnnxExpansion& e, const std::string& cache, Arguments& args) {
    const Dim half = Last(e.scope().ProvenInfoOf(cache).shape);
    if (half.is_known()) args.Set("rotary_embedding_dim", 2 * half.value());
  }

  // The optional inputs of an attention; "" for one that is left out.
  struct AttentionInputs {
    std::string mask, past, bias;
  };
  // Makes attention of queries, keys and values, which lie side by side in x:
  // softmax(q k^T scale + mask) v for each head.
  static void Attend(OnnxExpansion& e, const std::string& x, const AttentionInputs& given) {
    for (const char* name : {"do_rotary", "past_present_share_buffer"})
      if (e.args().Get<int64_t>(name, 0) != 0)
        Throw(ErrorCode::kUnsupported, "its ", name, " is not 0");
    const auto heads = e.args().Get<int64_t>("num_heads", 0);
    auto sizes = e.args().Get<std::vector<int64_t>>("qkv_hidden_sizes", {});
    const SymbolicShape weights = e.scope().ProvenInfoOf(e.In(1)).shape;
    if (sizes.empty()) {
      if (!weights.has_rank() || weights.rank() != 2 || !weights[1].is_known())
        Throw(ErrorCode::kUnsupported, "the shape of its weights must be known, as a matrix");
      sizes.assign(3, weights[1].value() / 3);
    }
    if (heads < 1 || sizes.size() != 3 || sizes[0] < heads || sizes[0] != sizes[1] ||
        sizes[0] % heads != 0 || sizes[2] % heads != 0)
      Throw(ErrorCode::kInvalidArgument, "its ", heads, " heads do not divide queries, keys and ",
            "values of sizes ", sizes);
    std::vector<std::string> parts;
    for (const char* what : {"q", "k", "v"}) parts.push_back(e.scope().FreshName(x + "/" + what));
    e.scope().AddNode(OperatorDef("Split", {x, e.Ints(sizes)}, parts, {{"axis", -1}}));
    for (size_t i = 0; i < 3; ++i) {
      const std::string shape = e.Ints({0, 0, heads, sizes[i] / heads});
      parts[i] = e.Node("Transpose", {e.Node("Reshape", {parts[i], shape})},
                        {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    }
    if (!given.past.empty())
      for (int64_t i = 0; i < 2; ++i)
        parts[Index(i + 1)] =
            e.Node("Concat", {e.Node("Gather", {given.past, e.Int(i)}), parts[Index(i + 1)]},
                   {{"axis", 2}});
    if (!e.Out(1).empty())
      e.Node("Concat", {e.Unsqueezed(parts[1], {0}), e.Unsqueezed(parts[2], {0})}, {{"axis", 0}},
             e.Out(1));
    auto scale = e.args().Get<float>("scale", 0.f);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(sizes[0] / heads));
    const std::string keys =
        e.Node("Transpose", {parts[1]}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
    std::string scores = e.Node("Mul", {e.Node("MatMul", {parts[0], keys}), e.Number(scale, x)});
    if (!given.bias.empty()) scores = e.Node("Add", {scores, given.bias});
    if (!given.mask.empty()) {
      const auto low = e.args().Get<float>("mask_filter_value", -10000.f);
      scores = e.Node("Add", {scores, Filtered(e, x, Allowed(e, keys, given.mask), low)});
    }
    if (e.args().Get<int64_t>("unidirectional", 0) != 0)
      scores = e.Node("Add", {scores, Filtered(e, x, Earlier(e, keys), LowestOf(e, x))});
    const std::string out =
        e.Node("MatMul", {e.Node("Softmax", {scores}, {{"axis", -1}}), parts[2]});
    e.Last("Reshape", {e.Node("Transpose", {out}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}),
                       e.Ints({0, 0, sizes[2]})});
  }
  static float LowestOf(OnnxExpansion& e, const std::string& x) {
    constexpr float kFloat16 = -65504;
    return e.scope().InfoOf(x).dtype == DType::kFloat16 ? kFloat16
                                                        : -(std::numeric_limits<float>::max)();
  }
  // Returns 0 where a bool is true, else `low`.
  static std::string Filtered(OnnxExpansion& e, const std::string& x, const std::string& allowed,
                              float low) {
    return e.Node("Where", {allowed, e.Number(0, x), e.Number(low, x)});
  }
  // Returns bools, true for the keys that a mask allows, of a shape that can be broadcast to
  // [batch, heads, queries, keys]. The mask has a number for each key [batch, keys], also for each
  // query [batch, queries, keys], or a count of keys [batch]. `keys` is [batch, heads, size, keys].
  static std::string Allowed(OnnxExpansion& e, const std::string& keys, const std::string& mask) {
    const SymbolicShape shape = e.scope().InfoOf(mask).shape;
    const SymbolicShape x = e.scope().InfoOf(e.In(0)).shape;
    const int rank = shape.has_rank() ? shape.rank() : 0;
    if (rank == 2 || rank == 3) {
      const std::string zero = e.Node("Sub", {mask, mask});
      const std::string is_set = e.Node("Greater", {mask, zero});
      return e.Unsqueezed(is_set, rank == 2 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1});
    }
    if (rank != 1 || (x.has_rank() && !Dim::Compatible(shape[0], x[0])))
      Throw(ErrorCode::kUnsupported, "its mask is ", ToString(shape),
            ", expected [batch, keys], [batch, queries, keys] or a count of keys [batch]");
    const std::string places = e.Node("Range", {e.Int(0), e.Extent(keys, 3), e.Int(1)});
    // Reshape refuses other lists, whose length is not known before the run.
    const std::string batch = e.Node("Shape", {e.In(0)}, {{"start", 0}, {"end", 1}});
    const std::string column = e.Node("Concat", {batch, e.Ints({1, 1, 1})}, {{"axis", 0}});
    const std::string counts =
        e.Node("Cast", {e.Node("Reshape", {mask, column})}, {{"to", OnnxNumberOf(DType::kInt64)}});
    return e.Node("Less", {places, counts});
  }
  // Returns bools [queries, keys], true for keys that are not behind the query. The last query
  // stands at the last key.
  static std::string Earlier(OnnxExpansion& e, const std::string& keys) {
    const std::string count = e.Extent(keys, 3), zero = e.Int(0), one = e.Int(1);
    const std::string first = e.Node("Sub", {count, e.Extent(e.In(0), 1)});
    return e.Node("LessOrEqual", {e.Node("Range", {zero, count, one}),
                                  e.Unsqueezed(e.Node("Range", {first, count, one}), {1})});
  }
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_ONNX_MICROSOFT_ATTENTION_HPP_
