// Operators of opkit::ops that process strings.
#include "opkit/ops/text/letter_case.hpp"
#include "opkit/ops/text/regex_full_match.hpp"
#include "opkit/ops/text/string_broadcast.hpp"
#include "opkit/ops/text/string_concat.hpp"
#include "opkit/ops/text/string_normalizer.hpp"
#include "opkit/ops/text/tf_idf_vectorizer.hpp"
#include "opkit/ops/text/tokenizer.hpp"
