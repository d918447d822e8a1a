// Operators of opkit::ops that find and move parts of images.
#include "opkit/ops/vision/affine_grid.hpp"
#include "opkit/ops/vision/center_crop_pad.hpp"
#include "opkit/ops/vision/col2im.hpp"
#include "opkit/ops/vision/deform_conv.hpp"
#include "opkit/ops/vision/grid_sample.hpp"
#include "opkit/ops/vision/max_unpool.hpp"
#include "opkit/ops/vision/non_max_suppression.hpp"
#include "opkit/ops/vision/roi.hpp"
