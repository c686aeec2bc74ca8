"""A random forest whose trees give the interval: scored with `interfere evaluate --models example-forest`."""

import numpy as np
from sklearn.ensemble import RandomForestRegressor


class Forest(RandomForestRegressor):
    """The mean of the trees, and quantiles of what single trees say."""

    def predict_quantiles(self, frame, quantiles):
        """Return one row a pair, one column a quantile."""
        trees = np.stack([tree.predict(frame.to_numpy()) for tree in self.estimators_])
        return np.quantile(trees, quantiles, axis=0).T
