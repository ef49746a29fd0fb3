// The page of a network that lies beside it.
import { busy, progress, show } from "./view.js";
import { load } from "./runner.js";

busy(async () => show(await load(".", progress)));
