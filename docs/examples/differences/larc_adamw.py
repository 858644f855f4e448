import numpy as np

weight, gradient = np.float32([4.0]), np.float32([1.0])
decayed = weight - np.float32(0.25) * weight
for name, seen in ("before", weight), ("after", decayed):
    ratio = 0.5 * np.linalg.norm(seen) / np.linalg.norm(gradient)
    print(f"norm taken {name} the decay: larc_eta 0.5 gives the ratio {ratio}")
